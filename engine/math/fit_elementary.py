#!/usr/bin/env python3
"""Prints the coefficients of elementary.h: minimax fits by Remez exchange, in 50-digit arithmetic.

Needs mpmath. `float` rows are rounded to single precision, the others to double.
"""

import struct

import mpmath as mp

mp.mp.dps = 50
GRID = 1200


def remez(f, low, high, degree, weight=lambda x: mp.mpf(1)):
    """Monomial coefficients of the weighted minimax polynomial of f, and its largest error."""
    low, high = mp.mpf(low), mp.mpf(high)
    middle, half = (low + high) / 2, (high - low) / 2
    size = degree + 2
    nodes = [middle - half * mp.cos(mp.pi * i / (size - 1)) for i in range(size)]
    grid = [middle - half * mp.cos(mp.pi * i / GRID) for i in range(GRID + 1)]
    values, weights = [f(x) for x in grid], [weight(x) for x in grid]
    for _ in range(12):
        system, right = mp.matrix(size, size), mp.matrix(size, 1)
        for i, x in enumerate(nodes):
            for j in range(degree + 1):
                system[i, j] = ((x - middle) / half) ** j
            system[i, degree + 1] = (-1) ** i / weight(x)
            right[i] = f(x)
        scaled = list(mp.lu_solve(system, right))[: degree + 1]
        errors = [
            (mp.polyval(scaled[::-1], (x - middle) / half) - v) * w
            for x, v, w in zip(grid, values, weights)
        ]
        peaks, best = [], 0
        for i in range(1, GRID + 1):
            if (errors[i] > 0) != (errors[best] > 0):
                peaks.append(best)
                best = i
            elif abs(errors[i]) > abs(errors[best]):
                best = i
        peaks.append(best)
        while len(peaks) > size:
            peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
        moved = [grid[i] for i in peaks]
        if len(peaks) < size or moved == nodes:
            break
        nodes = moved
    monomials = [mp.mpf(0)]
    for c in scaled[::-1]:
        longer = [mp.mpf(0)] * (len(monomials) + 1)
        for i, m in enumerate(monomials):
            longer[i] -= m * middle / half
            longer[i + 1] += m / half
        longer[0] += c
        monomials = longer
    return monomials[: degree + 1], max(abs(e) for e in errors)


def show(name, f, low, high, degree, weight=lambda x: mp.mpf(1)):
    coefficients, error = remez(f, low, high, degree, weight)
    print(f"{name}: error {mp.nstr(error, 3)}")
    for c in coefficients:
        value = float(c)
        if name.startswith("float"):
            value = struct.unpack("f", struct.pack("f", value))[0]
        print("  ", value.hex())


def near_zero(f, limit):
    """f with its limit where the formula cancels."""
    return lambda x: f(x) if abs(x) > mp.mpf("1e-9") else limit


def erfcx_at(s):
    """erfc(x) e^(x^2) at the x with s = 14.4 / (x + 3) - 2.6, and e^(-x^2)."""
    x = mp.mpf("14.4") / (s + mp.mpf("2.6")) - 3
    return mp.erfc(x) * mp.exp(x * x), mp.exp(-x * x)


if __name__ == "__main__":
    root = mp.sqrt
    ln2_half = mp.log(2) / 2 * mp.mpf("1.0001")
    z_log = ((root(2) - 1) / (root(2) + 1)) ** 2 * mp.mpf("1.001")
    eighth = mp.mpf(1) / 64 * mp.mpf("1.0001")
    exp = near_zero(lambda r: (mp.exp(r) - 1 - r) / r**2, mp.mpf(1) / 2)
    log = near_zero(lambda z: (2 * mp.atanh(root(z)) / root(z) - 2) / z, mp.mpf(2) / 3)
    erf = near_zero(lambda z: mp.erf(root(z)) / root(z) - 1, 2 / root(mp.pi) - 1)
    sin = near_zero(lambda z: mp.sin(2 * mp.pi * root(z)) / root(z), 2 * mp.pi)
    cos = near_zero(lambda z: (mp.cos(2 * mp.pi * root(z)) - 1) / z, -2 * mp.pi**2)
    show("double exp", exp, -ln2_half, ln2_half, 9)
    show("float exp", exp, -ln2_half, ln2_half, 4)
    show("double log", log, 0, z_log, 6)
    show("float log", log, 0, z_log, 3)
    show("double erf below 1", erf, 0, 1, 11)
    show("float erf below 1", erf, 0, 1, 6)
    show("double erf from 1", lambda s: erfcx_at(s)[0], -1, 1, 11, lambda s: erfcx_at(s)[1])
    show("float erf from 1", lambda x: mp.log(mp.erfc(x)), 1, 4, 6, mp.erfc)
    show("double sin", sin, 0, eighth, 6)
    show("double cos", cos, 0, eighth, 6)
