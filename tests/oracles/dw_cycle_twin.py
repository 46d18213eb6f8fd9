"""The cycle model behind tiling key 0 of the weight gradient, step by step, without a thought for speed.

Written before `ops.conv3d_backprop_filter.tiling_library` and sharing nothing with it: every number of the search is an
entry of one dict, every extent is tried one by one. `choose` returns the library's own numbers, in fractals; what the
operator makes of them is not its business.
"""

from __future__ import annotations

from math import ceil, gcd, lcm

L1, L0C = 512 * 1024, 128 * 1024


def cut(a, b):
    """Division as C does it, towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def cdiv(a, b):
    return cut(a + b - 1, b)


def divisors(value, most):
    return [f for f in range(1, min(value, most) + 1) if value % f == 0]


def richest(value, low, high):
    """Most divisors that a divisor of value between low and high has."""
    return max((len(divisors(f, f)) for f in range(low, high + 1) if value % f == 0), default=0)


def rich_enough(value):
    if value <= 8:
        return True
    small = richest(value, 1, 64)
    large = richest(value, 65, 128) if value > 128 else 0
    return small > 2 and (value <= 128 or small + large > 4)


def mapped(value, cores):
    """The extent itself, or a power of two above one that has few divisors."""
    if value == 1 or richest(value, 1, cores) > 4 or value < 16:
        return value
    seed = 16
    while seed < 1024 and not seed < value <= 2 * seed:
        seed *= 2
    return 2 * seed


def dims(value, cores):
    below = [f for f in divisors(mapped(value, cores), cores) if f <= value]
    return sorted({*below, *divisors(cores, min(cores, value))})


def share(value, parts, cores):
    if parts == 1 and rich_enough(value):
        return value
    best, target = cdiv(value, parts), cdiv(mapped(value, cores), parts)
    while best != target and not rich_enough(best):
        best += 1 if best < target else -1
    return best


def factor_below(value, limit, even=False):
    """Largest divisor of value up to limit, or 0."""
    if limit >= value:
        return value
    if limit <= 0 or (even and (value % 2 or limit == 1)):
        return 0
    return max((f for f in range(1, limit + 1) if value % f == 0 and not (even and f % 2)), default=0)


def prime_looking(value):
    """The model's primality test."""
    if value in (1, 2, 3):
        return value != 1
    if value % 6 not in (1, 5):
        return False
    i = 5
    while i * i <= value:
        if value % i == 0 or value % (i + 2) == 0:
            return False
        i += 6
    return True


def problem(g, item, hf32, cores):
    c0 = 32 // item
    cig, cog = g.cin // g.groups, g.cout // g.groups
    mag = min(lcm(lcm(cig, c0) // cig, lcm(cog, 16) // cog), g.groups) if g.groups > 1 else 1
    ce = cdiv(mag * cig, 16)
    dil = [1 if k == 1 else d for k, d in zip((g.kd, g.kh, g.kw), g.dilation, strict=True)]
    p = dict(
        n=g.n, do=g.do, ho=g.ho, wo=g.wo, hi=g.hi, wi=g.wi, kd=g.kd, khw=g.kh * g.kw, kh=g.kh, sh=g.stride[1],
        sw=g.stride[2], keh=(g.kh - 1) * dil[1] + 1, kew=(g.kw - 1) * dil[2] + 1, item=item, c0=c0, cores=cores,
        co1=cdiv(mag * cog, 16), ci1=ce, groups=g.groups, real_g=cdiv(g.groups, mag), fp32=item == 4, hf32=hf32,
        front=g.pad[0], back=g.pad[1], ci1_k0=cdiv(mag * cig, 16) * 16 // c0,
    )  # fmt: skip
    p["k"] = cdiv(g.ho * g.wo, 16) * 16 // c0
    p["kmin"] = 2 if item == 4 else 1
    return p


def rows_x(p, pixels):
    ho = cdiv(pixels, p["wo"])
    if pixels % p["wo"] != 0 and (pixels == 0 or p["wo"] % pixels != 0):
        ho += 1
    return min((ho - 1) * p["sh"] + p["keh"], p["hi"])


def channels_x(p, n):
    extra = 0
    if p["khw"] > n:
        extra = 1 if n and p["khw"] % n else 0
    elif n % p["khw"]:
        extra = 1 if 2 * n % p["khw"] == 0 else 2
    return cdiv(n, p["khw"]) + extra


def a_bytes(p, t):
    return t["m_al1"] * t["m"] * 16 * t["k_al1"] * p["c0"] * t["db_a"] * p["item"]


def b_bytes(p, t):
    hi = rows_x(p, t["k_bl1"] * p["c0"])
    return hi * p["wi"] * channels_x(p, t["n_bl1"] * t["n"]) * 16 * t["db_b"] * p["item"]


def fits(p, t):
    return 0 < a_bytes(p, t) + b_bytes(p, t) <= L1


def fresh(p):
    k = p["kmin"]
    return dict(m=1, n=1, k=k, m_al1=1, n_bl1=1, k_al1=k, k_bl1=k, db_a=1, db_b=1, db_c=1)


def fit_n(p, s, t, most):
    t["n"] = min(most, s["n_l0"])
    while t["n"] and (s["n_l0"] % t["n"] or not fits(p, t)):
        t["n"] -= 1


def fit_m(p, s, t, most):
    t["m"] = min(most, s["m"])
    while t["m"] and (s["m"] % t["m"] or not fits(p, t)):
        t["m"] -= 1


def lengthen_b(p, s, t):
    room = L1 - a_bytes(p, t)
    hi = cut(room, p["wi"] * channels_x(p, t["n_bl1"] * t["n"]) * 16 * t["db_b"] * p["item"])
    ho = cut(hi - p["keh"], p["sh"]) + 1
    most = s["k"] // t["k"]
    times = max(min(cut(cdiv(ho * p["wo"], p["c0"]), t["k"]), most), 1)
    times = factor_below(most, most if ho <= 0 else times)
    t["k_bl1"] = times * t["k"]
    while b_bytes(p, t) > room:
        times = factor_below(most, times - 1)
        t["k_bl1"] = times * t["k"]


def widen_b(p, s, t):
    if s["batch"] != 1 or t["k_bl1"] != s["k"]:
        return
    most = cdiv(s["n_l1"], t["n"])
    t["n_bl1"] = 1
    t["n_bl1"] = factor_below(most, min((L1 - a_bytes(p, t)) // b_bytes(p, t), most))
    while t["n_bl1"] * t["n"] * 16 > 65535:
        t["n_bl1"] = factor_below(most, t["n_bl1"] - 1)


def lengthen_a(p, s, t):
    one = t["m_al1"] * t["m"] * 16 * p["c0"] * t["db_a"] * p["item"]
    k = min((L1 - b_bytes(p, t)) // one, s["k"])
    t["k_al1"] = factor_below(s["k"] // t["k"], k // t["k"]) * t["k"]


def all_of_a(p, s):
    """dY of the whole core stays in L1; None where it does not fit, False where the search fails."""
    t = fresh(p)
    t["m_al1"], t["k_al1"] = s["m"], s["k"]
    if not fits(p, t):
        return None
    t["m"] = min(32, s["m"])
    while s["m"] % t["m"]:
        t["m"] -= 1
    t["m_al1"] = s["m"] // t["m"]
    t["k"] = t["k_bl1"] = min(s["k"], 64 // t["m"])
    while s["k"] % t["k"] or not fits(p, t) or (p["fp32"] and t["k"] % 2):
        t["k"] = t["k_bl1"] = factor_below(s["k"], t["k"] - 1, p["fp32"])
        if t["k"] == 0:
            return False
    fit_n(p, s, t, min(16, 64 // t["k"], 128 // t["m"]))
    if t["n"] == 0:
        return False
    lengthen_b(p, s, t)
    widen_b(p, s, t)
    return t


def base_mn(p, s, t):
    found = []
    for first, then in ((fit_n, fit_m), (fit_m, fit_n)):
        u = dict(t)
        first(p, s, u, 16)
        one = u["n"] if first is fit_n else u["m"]
        if one == 0:
            return False
        then(p, s, u, min(128 // one, 64 // p["kmin"]))
        if u["m"] == 0 or u["n"] == 0:
            return False
        found.append((u["m"], u["n"]))
    (m1, n1), (m2, n2) = found
    if m1 * n1 != m2 * n2:
        t["m"], t["n"] = max(found, key=lambda mn: mn[0] * mn[1])
    elif abs(m1 - n1) != abs(m2 - n2):
        t["m"], t["n"] = min(found, key=lambda mn: abs(mn[0] - mn[1]))
    else:
        t["m"] = min(m1, m2)
        t["n"] = m1 * n1 // t["m"]
    return True


def streamed(p, s, have_one):
    """Both operands in parts of K; None where the model does not look, False where the search fails."""
    t = fresh(p)
    if not base_mn(p, s, t):
        return False
    if s["k"] * max(t["m"], t["n"]) > 64 and have_one and prime_looking(s["k"]):
        return None
    t["k"] = min(s["k"], 64 // t["m"], 64 // t["n"])
    t["k_al1"] = t["k_bl1"] = t["k"]
    while t["k"] and (s["k"] % t["k"] or (p["fp32"] and t["k"] % 2) or not fits(p, t)):
        t["k"] = factor_below(s["k"], t["k"] - 1, p["fp32"])
        t["k_al1"] = t["k_bl1"] = t["k"]
    if t["k"] == 0:
        return False
    lengthen_b(p, s, t)
    lengthen_a(p, s, t)
    if min(t["k_al1"], t["k_bl1"]) <= 0:
        return False
    longer = "k_al1" if t["k_al1"] > t["k_bl1"] else "k_bl1"
    if max(t["k_al1"], t["k_bl1"]) % min(t["k_al1"], t["k_bl1"]):
        while (t["k_al1"] % t["k_bl1"] and t["k_bl1"] % t["k_al1"]) or s["k"] % t[longer] or not fits(p, t):
            t[longer] -= t["k"]
    return t


def bursts(length):
    """Requests of 16, 8, 4, 3, 2 and 1 blocks."""
    ones, twos = length & 1, length >> 1 & 1
    both = min(ones, twos)
    return ones + twos - both + (length >> 2 & 1) + (length >> 3 & 1) + (length >> 4)


def cycles(p, s, t):
    """The model's time of one core; sets the second buffers on the way."""
    m, n, k = t["m"], t["n"], t["k"]
    to_a = 42 + k * m * 512 // 256 if p["fp32"] else 20 + k * 512 // 256 + m * k * 512 // 256
    switches = 15 // p["wi"] if 16 % p["wo"] == 0 else 16 // p["wi"]
    rate = {1: 512 // (switches + 4)} | {w: 512 // (switches + 2 + 2 * w) for w in (2, 4, 8)}
    to_b = 42 + k * n * 512 // rate.get(p["sw"], 28)
    mul = m * n * k * (2 if p["fp32"] and not p["hf32"] else 1) + 20
    step = max(mul, to_a + to_b)
    out = m * n * 1024 // 256 + m * n * 1024 // 128
    in_a = 300 + t["m_al1"] * m * t["k_al1"] * 16 * 32 // 96
    hi, c1 = rows_x(p, t["k_bl1"] * p["c0"]), cdiv(t["n_bl1"] * n, p["khw"])
    in_b = 300 + c1 * hi * bursts(min((p["wo"] - 1) * p["sw"] + p["kew"], p["wi"])) * 512 // 96

    core_k = cdiv(p["k"], s["k_dim"])
    m_count = cdiv(cdiv(p["co1"], s["m_dim"]), t["m_al1"] * m)
    taps = max(gcd(p["kd"], s["n_dim"]), 1)
    n_core = cdiv(p["ci1_k0"] if p["fp32"] else p["ci1"], s["n_dim"] // taps) * (p["kd"] // taps) * p["khw"]
    n_count = cdiv(n_core, t["n_bl1"] * n)

    whole = s["batch"] == 1
    a_k, b_k = whole and t["k_al1"] == s["k"], whole and t["k_bl1"] == s["k"]
    a_all = a_k and s["group"] == 1 and t["m_al1"] * m == s["m"]
    b_all = b_k and s["group"] == 1 and t["n_bl1"] * n == s["n"]

    if m * n * 256 * 4 * 2 <= L0C:
        t["db_c"] = 2
    a, b = a_bytes(p, t), b_bytes(p, t)
    if not a_all:
        t["db_a"] = 2 if 2 * a + b <= L1 else 1
    if not b_all:
        t["db_b"] = 2 if a * t["db_a"] + 2 * b <= L1 else 1

    def over(flag, x, y):
        return max(x, y) if flag == 2 else x + y

    g, batch = s["group"], s["batch"]
    ka0, kb0 = t["k_al1"] // k, t["k_bl1"] // k
    short, long = min(t["k_al1"], t["k_bl1"]), max(t["k_al1"], t["k_bl1"])
    times = long // short
    if a_k and b_k:
        if short == k:
            core = t["n_bl1"] * (to_b + t["m_al1"] * (max(to_a, batch * mul) + out))
        else:
            core = t["n_bl1"] * t["m_al1"] * (batch * ka0 * step + out)
        if a_all and b_all:
            return in_a + in_b + g * core
        if a_all:
            return in_a + g * n_count * over(t["db_b"], in_b, core)
        if b_all:
            return in_b + g * m_count * over(t["db_a"], in_a, core)
        return g * n_count * (in_b + m_count * over(t["db_a"], in_a, core))
    if b_k:
        block = batch * times * over(t["db_a"], in_a, ka0 * step) + out
        if b_all:
            return in_b + g * m_count * t["n_bl1"] * block
        return g * n_count * (in_b + m_count * t["n_bl1"] * block)
    if a_k:
        block = batch * times * over(t["db_b"], in_b, kb0 * step) + out
        if a_all:
            return in_a + g * n_count * t["m_al1"] * block
        return g * n_count * m_count * (in_a + t["m_al1"] * block)
    loads = cdiv(short, k) * m
    if t["k_al1"] == t["k_bl1"]:
        both = 2 if t["db_a"] == t["db_b"] == 2 and loads < 60 else 1
        return g * n_count * m_count * (batch * (core_k // t["k_al1"]) * over(both, in_a + in_b, ka0 * step) + out)
    if t["k_al1"] > t["k_bl1"]:
        inner = over(t["db_b"] if loads < 60 else 1, in_b, kb0 * step)
        outer = over(t["db_a"] if loads * times < 60 else 1, in_a, times * inner)
        return g * n_count * m_count * (batch * (core_k // t["k_al1"]) * outer + out)
    inner = over(t["db_a"] if loads < 60 else 1, in_a, ka0 * step)
    outer = over(t["db_b"] if loads * times < 60 else 1, in_b, times * inner)
    return g * n_count * m_count * (batch * (core_k // t["k_bl1"]) * outer + out)


def core_shapes(p, prune):
    """Every split over the cores that the model looks at, in its order."""
    cores = p["cores"]
    n_dims = dims(p["ci1"], cores) if p["kd"] == 1 else divisors(p["ci1"], cores)
    for d in divisors(p["do"], cores):
        for kd in divisors(p["kd"], cores):
            for g in divisors(p["real_g"], cores):
                for b in dims(p["n"], cores):
                    items = cdiv(p["n"], b) * (p["do"] // d)
                    if d > 1 and ((items > p["do"] and items % p["do"]) or (items < p["do"] and p["do"] % items)):
                        continue
                    for n in n_dims:
                        for m in dims(p["co1"], cores):
                            used = d * kd * g * b * n * m
                            if used > cores:
                                continue
                            k = min(cores // used, p["k"])
                            while k and p["fp32"] and cdiv(p["k"], k) % 2:
                                k -= 1
                            if k == 0 or (prune and used * k < ceil(cores * 0.8)):
                                continue
                            taps = p["kd"] // kd
                            width = (share(p["ci1"], n, cores) if p["kd"] == 1 else p["ci1"] // n) * p["khw"]
                            s = dict(
                                batch=cdiv(p["n"], b) * (p["do"] // d), m=share(p["co1"], m, cores), n=width * taps,
                                k=cdiv(p["k"], k), group=p["real_g"] // g, n_l0=width * taps, n_l1=width * taps,
                                batch_dim=b, m_dim=m, k_dim=k, n_dim=n * kd, d_dim=d, group_dim=g,
                            )  # fmt: skip
                            if p["kd"] > 1 and (p["real_g"] > 1 or p["front"] or p["back"]):
                                s["n_l0"] = width
                                if p["real_g"] > 1:
                                    s["n_l1"] = width
                            yield s


def may_hold_all_of_a(p):
    if p["groups"] * p["n"] > p["cores"]:
        return False
    t = fresh(p)
    t["m_al1"], t["k_al1"] = cdiv(p["co1"], p["cores"] // (p["groups"] * p["n"])), p["k"]
    return fits(p, t)


def smallest_fits(p):
    """The library's check before it searches: one fractal of dY, and the rows of X for 16 pixels."""
    pairs = p["kmin"] * p["c0"] * p["item"]
    if p["wo"] >= 16:
        rows = p["keh"] if p["wo"] % 16 == 0 else p["keh"] + p["sh"]
        x = rows * p["wi"] * pairs
    else:
        high = cdiv(16, p["wo"]) + (1 if 16 % p["wo"] else 0)
        x = cdiv((p["keh"] + (high - 1) * p["sh"]) * p["wi"], 16) * 16 * pairs
    return 16 * pairs + x <= L1


def choose(g, item, hf32, cores):
    """Return the library's numbers, or None where it refuses the call."""
    p = problem(g, item, hf32, cores)
    if not smallest_fits(p):
        return None
    hold_a = may_hold_all_of_a(p)
    best = None
    many = p["n"] * p["do"] >= cores
    for prune in (True, False) if many else (False,):
        for s in core_shapes(p, prune):
            tried = [all_of_a(p, s)] if hold_a and s["group"] == s["batch"] == 1 else []
            for t in tried:
                if t is False:
                    return None
                if t and (best is None or cycles(p, s, dict(t)) < best[0]):
                    best = (cycles(p, s, t), s, t)
            t = streamed(p, s, best is not None)
            if t is False:
                return None
            if t and (best is None or cycles(p, s, dict(t)) < best[0]):
                best = (cycles(p, s, t), s, t)
        if best:
            break
    if best is None:
        return None
    _, s, t = best
    if s["batch"] == s["group"] == 1:
        if t["m_al1"] * t["m"] == s["m"] and t["k_al1"] == s["k"]:
            t["db_a"] = 1
        n_count = cdiv(p["ci1_k0"] * p["khw"], s["n_dim"] * t["n_bl1"] * t["n"])
        if t["n_bl1"] * t["n"] == s["n"] and t["k_bl1"] == s["k"] and (not p["fp32"] or n_count == 1):
            t["db_b"] = 1
    return s | {f"l0_{name}" if name in "mnk" else name: value for name, value in t.items()}
