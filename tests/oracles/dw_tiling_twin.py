"""A second, flat implementation of the two published tilings: one dictionary of numbers, no shared code.

``public`` = asc-devkit's tiling class, otherwise the basic-block template of ops-nn's Conv3DBackpropFilterV2.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, gcd, lcm
from typing import Any

L1, L0A, L0B, L0C = 524288, 65536, 65536, 131072


def up(value: int, step: int) -> int:
    return ceil(Fraction(value, step)) * step


def cdiv(value: int, by: int) -> int:
    return ceil(Fraction(value, by))


def tiling(g: Any, item: int, cores: int, deterministic: bool, public: bool) -> dict[str, int]:
    """Return the members the search decides, for a `ConvGeometry` ``g`` and ``item`` bytes per element."""
    c0 = 32 // item
    cig, cog = g.cin // g.groups, g.cout // g.groups
    mag = min(lcm(lcm(cig, c0) // cig, lcm(cog, 16) // cog), g.groups)
    real, khw = cdiv(g.groups, mag), g.kh * g.kw
    cin1 = cdiv(mag * cig, c0)
    dilation_d, dilation_h = (1 if g.kd == 1 else g.dilation[0]), (1 if g.kh == 1 else g.dilation[1])
    merged = not public and not deterministic and real == 1 and dilation_d == 1
    p = {
        "M": up(mag * cog, 16), "N": khw * cin1 * c0 * (g.kd if merged else 1), "K": up(g.ho * g.wo, c0),
        "items": (1 if deterministic else g.n * g.do) * (1 if merged else g.kd * real), "used": cores,
        "step": c0 if public else 16, "bc": 16 if public else c0, "kh": g.kh, "khw": khw, "wo": g.wo, "wi": g.wi,
        "sh": g.stride[1], "dh": dilation_h, "b": item, "c0": c0, "l0": int(public),
    }  # fmt: skip
    t: dict[str, int] = {"order": int(p["M"] > p["N"])}
    mn = g.stride[1] * g.stride[2] > 1 and (khw % 16 == 0 or 16 % khw == 0)
    if deterministic or mn:
        split_mn(p, t)
        if deterministic:
            t["split"] = 4
            spread(p, t, g, cin1)
            stream(p, t, g, cores)
            return finish(p, t)
    if not (deterministic or mn) or t["total"] < p["used"]:
        split_k(p, t)
    if not public:
        p["used"] = min(p["used"], t["total"])
    return finish(p, t)


def finish(p: dict[str, int], t: dict[str, int]) -> dict[str, int]:
    return {**t, "used": p["used"], "bound": bound(p, t)}


def copies(n: int, khw: int) -> int:
    c = cdiv(n, khw)
    if khw > n and khw % n != 0:
        return c + 1
    return c + 1 if 2 * n % khw else c


def rows_in(p: dict[str, int], t: dict[str, int]) -> int:
    kb, wo = t["bK"] * t["sKb"], p["wo"]
    if kb % wo == 0 or wo % kb == 0:
        ho = cdiv(kb, wo)
    elif kb > wo:
        ho = kb // wo + 2
    else:
        ho = 2
    return (ho - 1) * p["sh"] + (p["kh"] - 1) * p["dh"] + 1


def bound(p: dict[str, int], t: dict[str, int]) -> int:
    return rows_in(p, t) * p["wi"] * copies(cdiv(t["sN"] * t["bN"], p["bc"]), p["khw"]) * p["bc"]


def used_l1(p: dict[str, int], t: dict[str, int]) -> int:
    return t["sKa"] * t["bK"] * t["sM"] * t["bM"] * p["b"] * t["dbA"] + bound(p, t) * p["b"] * t["dbB"]


def invalid(p: dict[str, int], t: dict[str, int]) -> bool:
    k16 = up(t["bK"], 16) * p["b"] * 2
    return used_l1(p, t) > L1 or (p["l0"] == 1 and (k16 * t["bM"] > L0A or k16 * t["bN"] > L0B))


def init(p: dict[str, int], t: dict[str, int]) -> None:
    if t["split"] >= 3:
        m, n, k, t["dbC"] = (256, 128, 64, 1) if p["M"] > 128 else (128, 256, 64, 1)
    else:
        m, n, k, t["dbC"] = 128, 128, 128, 2
    k = k * 2 // p["b"]
    t["bM"], t["bN"] = min(m, up(p["M"], 16)), min(n, up(p["N"], 16))
    whole = up(p["K"], p["step"])
    if whole < k:
        t["bK"] = whole
    else:
        by_a = max(k * m // t["bM"] // p["step"], 1) * p["step"]
        by_b = max(k * n // t["bN"] // 16, 1) * 16
        t["bK"] = min(by_a, by_b, whole)
        to_rows(p, t)
    t["dbA"] = t["dbB"] = 2


def to_rows(p: dict[str, int], t: dict[str, int]) -> None:
    if p["wo"] < t["bK"] and p["wo"] % p["step"] == 0:
        t["bK"] -= t["bK"] % p["wo"]


def steps(p: dict[str, int], t: dict[str, int], da: int, db: int) -> None:
    t["dbA"] = 1 if da < 2 else t["dbA"]
    t["dbB"] = 1 if db < 2 else t["dbB"]
    a, b = da // t["dbA"], db // t["dbB"]
    its = {x: cdiv(p[x], t["b" + x]) for x in "MNK"}
    for second in (False, True):
        t["sKa"] = max(1, min(a // t["sM"], its["K"]))
        t["sKb"] = max(1, min(b // t["sN"], its["K"]))
        if not second and t["split"] == 1:
            t["sM"] = max(1, min(a // t["sKa"], its["M"]))
        if not second and t["split"] == 2:
            t["sN"] = max(1, min(b // t["sKb"], its["N"]))
    small = min(t["sKa"], t["sKb"])
    if t["split"] == 1:
        t["sKa"] = max(t["sKa"] // t["sKb"], 1) * t["sKb"]
    elif t["split"] == 2:
        t["sKb"] = max(t["sKb"] // t["sKa"], 1) * t["sKa"]
    else:
        t["sKa"], t["sKb"] = t["sKa"] // small * small, t["sKb"] // small * small


def single(p: dict[str, int], t: dict[str, int]) -> None:
    w = p["khw"] * p["c0"]
    t["scM"] = p["M"] if t["split"] == 2 else t["sM"] * t["bM"]
    t["scN"] = p["N"] if t["split"] == 1 else max(t["sN"] * t["bN"] // w, 1) * w
    t["scK"] = p["K"] if t["split"] >= 3 else max(max(t["sKa"], t["sKb"]) * t["bK"] // p["wo"], 1) * p["wo"]
    t["total"] = p["items"] * cdiv(p["M"], t["scM"]) * cdiv(p["N"], t["scN"]) * cdiv(p["K"], t["scK"])


def split_k(p: dict[str, int], t: dict[str, int]) -> None:
    t["split"] = 2 if p["M"] > p["N"] else 1
    init(p, t)
    ladder = [(8, 8), (8, 4), (4, 4), (4, 2), (2, 2), (2, 1), (1, 1)]
    for pair in ladder:
        da, db = pair if t["split"] == 1 else pair[::-1]
        t["sM"] = t["sN"] = 1
        steps(p, t, da, db)
        single(p, t)
        if t["total"] >= p["used"] and not invalid(p, t):
            break
    if invalid(p, t):
        shrink(p, t)
        steps(p, t, da, db)
        single(p, t)


def split_mn(p: dict[str, int], t: dict[str, int]) -> None:
    t["split"] = 3
    init(p, t)
    for depth in (16, 14, 12, 10, 8, 6, 4, 2, 1):
        t["sM"] = t["sN"] = 1
        t["depth"] = depth
        steps(p, t, depth, depth)
        if not invalid(p, t):
            break
    if invalid(p, t):
        shrink(p, t)
        steps(p, t, t["depth"], t["depth"])
    single(p, t)


def excess(p: dict[str, int], t: dict[str, int]) -> int:
    return max((t["bM"] * t["bK"] + bound(p, t)) * p["b"] - L1, 0)


def shrink(p: dict[str, int], t: dict[str, int]) -> None:
    s, b, c0 = p["step"], p["b"], p["c0"]
    a_loss = t["bM"] * s * b
    b_loss = cdiv(copies(cdiv(t["bN"], c0), p["khw"]) * c0 * p["wi"] * p["sh"] * s * b, p["wo"])
    new = t["bK"] - cdiv(excess(p, t), a_loss + b_loss) * s
    if new < s:
        t["bK"] = s
    else:
        t["bK"] = new
        while t["bK"] > s and invalid(p, t):
            t["bK"] -= s
            if t["bK"] <= p["wo"] and (p["wo"] % t["bK"] == 0 or p["wo"] % s != 0):
                break
        if not invalid(p, t):
            return
    shrink_mn(p, t)
    room = L1 - used_l1(p, t)
    cap = max(L0C // b // 2 // t["bM"] // 16, 1) * 16
    t["bM"] = min(t["bM"] + max(room, 0) // (t["bK"] * 16 * b) * 16, p["M"], cap)
    good = t["bK"]
    while not invalid(p, t):
        good, t["bK"] = t["bK"], t["bK"] + s
    t["bK"] = good
    whole = up(p["K"], s)
    if whole < good:
        t["bK"] = whole
        return
    half = L0A // b // 2
    t["bK"] = min(good, max(half // t["bM"] // 16, 1) * 16, max(half // t["bN"] // 16, 1) * 16, whole)
    to_rows(p, t)


def shrink_mn(p: dict[str, int], t: dict[str, int]) -> None:
    for big, other in (("bM", "bN"), ("bN", "bM")):
        while t[big] > 16 and t[big] > t[other] and invalid(p, t):
            t[big] -= 16
    if not invalid(p, t):
        return
    b = p["b"]
    count = cdiv(excess(p, t), t["bK"] * 16 * b + cdiv(rows_in(p, t) * p["wi"] * 16 * b, p["khw"]))
    if t["bM"] < (count + 1) * 16:
        t["bM"] = t["bN"] = 16
        return
    t["bM"] = t["bN"] = t["bM"] - count * 16
    have = copies(cdiv(t["bN"], p["c0"]), p["khw"])
    while t["bM"] > 16 and invalid(p, t):
        now = copies(cdiv(t["bM"], p["c0"]), p["khw"])
        if now < have:
            t["bN"], have = t["bM"], now
        else:
            t["bM"] -= 16


def spread(p: dict[str, int], t: dict[str, int], g: Any, cin1: int) -> None:
    """The four steps of deterministic mode before stream-K."""
    used, window, bd = p["used"], p["khw"] * p["c0"], g.n * g.do
    if t["total"] % used or t["scN"] != p["N"]:
        rest = p["items"] * cdiv(p["M"], t["scM"])
        most = max(p["K"] // t["bK"], bd)
        targets = [(used, 0)]
        if most > 1 and t["total"] % used + 2 < used:
            targets += [(used // s, s) for s in range(2, min(most, used) + 1)]
        for target, s in targets:
            n = max(min(cdiv(cin1, target // gcd(rest, target)) * window, p["N"]), t["scN"])
            total = cdiv(p["N"], n) * rest
            tail = total % used
            if tail == 0 if s == 0 else (tail * s == used or tail + 2 >= used):
                t["scN"], t["total"] = n, total
                break
    wide = up(t["scN"], 16)
    t["bN"] = min(t["bN"], wide)
    base, khw = t["bN"] // 16, p["khw"]
    tail = wide // 16 % base
    if 0 < tail <= 2 and 2 * tail < base:
        windows = cdiv(base, khw)
        if windows * khw > max(base, 16):
            windows = max(windows - 1, 1)
        if windows * khw <= max(base, 16):
            old = (t["bM"], t["bN"], t["bK"])
            t["bN"] = windows * khw * 16
            cap = min(L0C // 4 // t["bN"], t["bM"])
            m = min(cap, t["bM"] // 2) if t["bM"] > 128 and cap < t["bM"] else cap
            t["bM"] = max(m - m % 16, 16)
            k = L0B // p["b"] // 2 // max(t["bM"], t["bN"])
            t["bK"] = max(k - k % 16, 16)
            while t["bK"] > 16 and invalid(p, t):
                t["bK"] -= 16
            if invalid(p, t):
                t["bM"], t["bN"], t["bK"] = old
            else:
                steps(p, t, t["depth"], t["depth"])
                single(p, t)
    t["dbC"] = 2 if t["bM"] * t["bN"] * 8 <= L0C else 1
    if t["total"] < used and t["total"] > used // 2:
        p["used"] = t["total"]


def stream(p: dict[str, int], t: dict[str, int], g: Any, cores: int) -> None:
    t["skType"] = t["skCores"] = 0
    used, tail, hw, bd = p["used"], t["total"] % p["used"], g.ho * g.wo, g.n * g.do
    if tail == 0 or tail > used // 2:
        return
    share = used // tail
    if share <= 1:
        return
    part = cdiv(bd, share)
    by_batch = cdiv(bd, part)
    part_k = cdiv(g.ho, min(share, cdiv(hw, max(g.wo, t["bK"])))) * g.wo
    by_rows = cdiv(hw, part_k)
    fill_batch, fill_rows = Fraction(bd % part, part), Fraction(hw % part_k, part_k)
    batch = not (by_batch < by_rows or (fill_batch > 0 and fill_batch < fill_rows))
    count = by_batch if batch else by_rows
    if count > 1:
        t["skType"], t["skCores"] = (1 if batch else 2), count
    if tail == t["total"]:
        p["used"] = min(max(t["total"] * max(t["skCores"], 1), 1), cores)
