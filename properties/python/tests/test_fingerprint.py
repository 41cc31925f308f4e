"""A fingerprint changes with every element and with its place, and with nothing else."""

import pytest
import torch

from rematch.journal.fingerprint import COLUMNS, SHORT, Fingerprints, flattened

DTYPES = [torch.bool, torch.uint8, torch.float8_e5m2, torch.bfloat16, torch.float16, torch.int32]
DTYPES += [torch.float32, torch.int64, torch.float64, torch.complex64, torch.complex128]
SIZES = [1, 7, 64, 2 * SHORT, 8 * SHORT + 3]
"""Words of every width, and sums of rows and columns."""


def of(t):
    return int(Fingerprints().of(flattened(t)))


def numbers(size, dtype):
    return torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(2)).to(dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_changed_element_shows(size, dtype):
    t = numbers(size, dtype)
    before = of(t)
    for place in {0, size // 3, size - 1}:
        changed = t.clone()
        changed[place] = torch.tensor(not bool(t[place])).to(dtype)
        assert of(changed) != before


def test_every_changed_element_of_a_sum_of_sums_shows():
    t = torch.arange(SHORT * COLUMNS)
    before = of(t)
    for place in (0, 1, len(t) // 2, len(t) - 1):
        t[place] += 1
        assert of(t) != before
        t[place] -= 1
    assert of(t) == before


@pytest.mark.parametrize("size", SIZES[1:])
def test_two_elements_that_change_places_show(size):
    t = torch.arange(size, dtype=torch.int32)
    # The last pair stands in one column.
    for a, b in ((0, 1), (0, size - 1), (size // 2, size // 3), (1, min(1 + 4 * COLUMNS, size - 1))):
        changed = t.clone()
        changed[a], changed[b] = t[b].clone(), t[a].clone()
        assert of(changed) != of(t)


def test_signs_of_zero_and_bits_of_a_nan_show():
    assert of(torch.tensor([0.0, 1.0])) != of(torch.tensor([-0.0, 1.0]))
    nan = torch.tensor([float("nan")] * 2)
    assert of(nan) == of(nan.clone())
    assert of(nan) != of(torch.tensor([0x7FC00001, 0x7FC00000], dtype=torch.int32).view(torch.float32))


def test_layout_and_place_in_memory_do_not_show():
    t = torch.randn(6, 10)
    held = torch.empty(61)[1:].view(6, 10)
    assert of(held.copy_(t)) == of(t.t().contiguous().t()) == of(t)
    z = torch.randn(6, dtype=torch.complex64)
    assert of(z.conj()) == of(z.conj().resolve_conj()) and of(z.conj().imag) == of(-z.imag)
    assert of(torch.empty(0, 3)) == 0


def test_many_have_the_fingerprints_that_each_has_alone():
    each = [numbers(size, dtype) for size in SIZES for dtype in DTYPES for _ in range(2)]
    flat = [flattened(t) for t in each]
    assert [int(one) for one in Fingerprints().of_all(flat)] == [of(t) for t in each]


def test_it_takes_no_random_numbers():
    state = torch.get_rng_state()
    assert of(torch.arange(5)) == of(torch.arange(5)) != 0
    assert torch.equal(torch.get_rng_state(), state)
