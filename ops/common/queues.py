"""Buffers that one pipe fills and another empties, as jitted pieces of kernels: Ascend C's TQue by hand.

A queue stands for the halves of a buffer in UB, L1, L0 or L0C. Its two flags a half are "full" (producer to consumer)
and "free" (consumer to producer). The producer brackets its work with `alloc` and `enque`, the consumer with `deque`
and `free`. A core says once for each half that it is free before the first `alloc` (`open_queue`), and waits for that
behind the last `free` (`close_queue`), so that it leaves no flag set.

Source: asc-devkit ``docs/zh/api/SIMD-API``, TQue (AllocTensor, EnQue, DeQue, FreeTensor).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npu_sim._jit import Int, jit
from npu_sim.isa.emit import emit_set_flag, emit_wait_flag


class Queue(NamedTuple):
    """A buffer between two pipes; half ``h`` uses event ``first_event + h`` of both directions."""

    producer: int
    consumer: int
    first_event: int = 0


@jit
def alloc(rows: np.ndarray, n: Int, queue: Queue, half: Int, site: Int, tile: Int) -> Int:
    """Let the producer wait until the half is free."""
    return emit_wait_flag(rows, n, queue.consumer, queue.producer, queue.first_event + half, site, tile)


@jit
def enque(rows: np.ndarray, n: Int, queue: Queue, half: Int, site: Int, tile: Int) -> Int:
    """Say behind the producer's work that the half is full."""
    return emit_set_flag(rows, n, queue.producer, queue.consumer, queue.first_event + half, site, tile)


@jit
def deque(rows: np.ndarray, n: Int, queue: Queue, half: Int, site: Int, tile: Int) -> Int:
    """Let the consumer wait until the half is full."""
    return emit_wait_flag(rows, n, queue.producer, queue.consumer, queue.first_event + half, site, tile)


@jit
def free(rows: np.ndarray, n: Int, queue: Queue, half: Int, site: Int, tile: Int) -> Int:
    """Say behind the consumer's work that the half is free."""
    return emit_set_flag(rows, n, queue.consumer, queue.producer, queue.first_event + half, site, tile)


@jit
def open_queue(rows: np.ndarray, n: Int, queue: Queue, halves: Int, site: Int) -> Int:
    """Say of each of the ``halves`` that it is free, before the first `alloc`."""
    for half in range(halves):
        n = free(rows, n, queue, half, site, -1)
    return n


@jit
def close_queue(rows: np.ndarray, n: Int, queue: Queue, halves: Int, site: Int) -> Int:
    """Wait until each of the ``halves`` is free, behind the last `free`."""
    for half in range(halves):
        n = alloc(rows, n, queue, half, site, -1)
    return n


@jit
def open_queues(rows: np.ndarray, n: Int, queues: tuple[Queue, ...], halves: Int, site: Int) -> Int:
    """Say once for each half of each of the tuple ``queues`` that it is free."""
    for half in range(halves):
        for queue in queues:
            n = free(rows, n, queue, half, site, -1)
    return n


@jit
def close_queues(rows: np.ndarray, n: Int, queues: tuple[Queue, ...], halves: Int, site: Int) -> Int:
    """Wait until each half of each of the tuple ``queues`` is free."""
    for half in range(halves):
        for queue in queues:
            n = alloc(rows, n, queue, half, site, -1)
    return n
