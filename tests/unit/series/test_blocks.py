"""The packed form of series: what is read is what was written, within each figure's resolution, and nothing else."""

from __future__ import annotations

import math
import random
import zlib

import pytest
from tests.support.seeds import seeds

from holdfast._series.block import _HEAD, Block, Track, pack, unpack
from holdfast._series.figures import MOST, Figure, Join, stored, throttle_words, values_of
from holdfast._series.joining import Joining, bands, joined, outliers

NAN = math.nan
START = 1_790_000_040 // 60 * 60


def minute(start: int, rank: int = 0, **figures: tuple[float, float, float]) -> Block:
    tracks = {
        (rank, Figure[name.upper()]): Track([mean], [least], [most])
        for name, (mean, least, most) in figures.items()
    }
    return Block(start, 60, 1, tracks)


def same(one: float, other: float, within: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or abs(one - other) <= within


@pytest.mark.parametrize("seed", range(20))
def test_any_block_comes_back_within_the_resolution_of_its_figures(seed: int) -> None:
    rng = random.Random(seed)
    slots, ranks = rng.randint(1, 90), sorted(rng.sample(range(9_000), rng.randint(1, 12)))
    tracks = {}
    for rank in ranks:
        for figure in rng.sample(list(Figure), rng.randint(1, len(Figure))):
            top = 10 ** rng.uniform(0, 12 if figure in (Figure.NVLINK, Figure.STEP, Figure.MEMORY_USED) else 2.5)
            means = [NAN if rng.random() < 0.2 else rng.uniform(0, top) for _ in range(slots)]
            if figure.form.join is Join.MEAN:
                tracks[rank, figure] = Track(means, [m * 0.5 for m in means], [m * 1.5 for m in means])
            else:
                tracks[rank, figure] = Track.flat(m if math.isnan(m) else float(int(m)) for m in means)
    block = Block(START, 60, slots, tracks)
    found = unpack(pack(block))
    assert (found.start, found.step, found.slots) == (START, 60, slots)
    for key, track in tracks.items():
        figure = key[1]
        for kept, had in ((track.mean, found.tracks[key].mean), (track.least, found.tracks[key].least)):
            for one, other in zip(kept, had, strict=True):
                if figure.form.join is Join.ANY:
                    assert math.isnan(one) == math.isnan(other)
                    continue
                if figure.form.scale and one > 32_767 * figure.form.scale and figure is not Figure.STEP:
                    assert other == 32_767 * figure.form.scale
                    continue
                scale = figure.form.scale or abs(one) * 0.05 + 1
                assert same(one, other, scale if figure.form.join is Join.MEAN else 0.5), key


def test_only_the_figures_that_are_wanted_are_read() -> None:
    block = minute(START, gpu_util=(50, 10, 90), cpu=(2, 1, 3), step=(7, 7, 7))
    found = unpack(pack(block), {Figure.STEP})
    assert set(found.tracks) == {(0, Figure.STEP)}
    assert found.tracks[0, Figure.STEP].mean == [7]


@seeds(60)
def test_of_some_ranks_and_of_means_alone_the_same_is_read_and_joined(seed: int) -> None:
    rng = random.Random(seed)
    tracks = {}
    for rank in range(6):
        for figure in (Figure.SAMPLES, Figure.GPU_UTIL, Figure.CPU, Figure.STEP):
            means = [NAN if rng.random() < 0.1 else float(rng.randint(2, 90)) for _ in range(30)]
            tracks[rank, figure] = Track(means, [m - 2 for m in means], [m + 2 for m in means])
    data = pack(Block(START, 60, 30, tracks))
    wanted = set(rng.sample(range(8), 3))
    whole, some, means_only = unpack(data), unpack(data, ranks=wanted), unpack(data, extremes=False)
    assert str(some.tracks) == str({key: track for key, track in whole.tracks.items() if key[0] in wanted})
    step = rng.choice([60, 180, 300])
    slots = 1800 // step
    mine = Joining(START, step, slots, extremes=False)
    mine.add(means_only)
    found = mine.block().tracks
    for key, track in joined([whole], START, step, slots).tracks.items():
        assert str(found[key].mean) == str(found[key].least) == str(found[key].most) == str(track.mean)


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf, -1.0, -0.5])
def test_what_is_no_value_is_unknown_and_never_0(value: float) -> None:
    for figure in Figure:
        assert stored(figure, value) == -1
        assert math.isnan(values_of(figure, [-1])[0])
        found = unpack(pack(Block(START, 60, 2, {(0, figure): Track.flat([value, 0.0])})))
        assert math.isnan(found.tracks[0, figure].mean[0])
        assert found.tracks[0, figure].mean[1] == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 40,
        pack(minute(START, cpu=(1, 1, 1)))[:-3],
        pack(minute(START, cpu=(1, 1, 1))) + b"more",
        b"\x02" + pack(minute(START, cpu=(1, 1, 1)))[1:],
        pack(minute(START, cpu=(1, 1, 1)))[:17] + zlib.compress(b"\0" * (50 << 20)),
        bytes(2 << 20),
    ],
    ids=["empty", "zeros", "cut off", "goes on", "newer form", "deflated zeros", "too long"],
)
def test_bytes_that_are_no_block_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^its? "):
        unpack(data)


@seeds(300)
def test_damaged_bytes_are_refused_or_give_plain_values(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(pack(minute(START, gpu_util=(50, 10, 90), step=(4, 4, 4))))
    for _ in range(rng.randint(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        found = unpack(bytes(data))
    except ValueError:
        return
    assert all(value >= 0 or math.isnan(value) for track in found.tracks.values() for value in track.mean)


def test_the_largest_number_of_a_logarithmic_figure_is_a_value() -> None:
    """A host may send it, though no agent does."""
    assert values_of(Figure.NVLINK, [MOST]) == [2.0**1_023 - 1]
    assert values_of(Figure.NVLINK, [16, -1])[0] == 1.0


def test_values_beyond_the_bounds_are_brought_to_them() -> None:
    """Extremes that are farther from the mean than can be: what a host made up."""
    block = Block(START, 60, 3, {(0, Figure.GPU_UTIL): Track([5.0, NAN, 40.0], [0.0, NAN, 40.0], [9.0, NAN, 41.0])})
    packed = pack(block)
    body = bytearray(zlib.decompress(packed[_HEAD.size :]))
    cells = 3
    lows, highs = 4 + 2 * cells, 4 + 4 * cells
    body[lows : lows + cells] = b"\xff" * cells
    body[highs + cells : highs + 2 * cells] = b"\xff" * cells
    track = unpack(packed[: _HEAD.size] + zlib.compress(bytes(body), 9)).tracks[0, Figure.GPU_UTIL]
    assert (track.least[0], track.least[2]) == (0, 0)
    assert (track.most[0], track.most[2]) == (MOST, MOST)
    assert all(math.isnan(held[1]) for held in (track.mean, track.least, track.most))


@pytest.mark.parametrize("figure", Figure)
def test_the_largest_value_may_come_after_an_unknown_one(figure: Figure) -> None:
    track = Track.flat([NAN, 1e300, NAN, 0.0])
    found = unpack(pack(Block(START, 2, 4, {(0, figure): track}))).tracks[0, figure]
    assert [math.isnan(value) for value in found.mean] == [True, False, True, False]
    assert found.mean[1] > 0 or figure is Figure.THROTTLE


def test_two_parts_of_one_minute_are_one_minute_again_by_their_samples() -> None:
    first = minute(START, power=(100, 90, 110), samples=(20, 20, 20), throttle=(4, 4, 4), step=(9, 9, 9))
    second = minute(START, power=(400, 390, 420), samples=(10, 10, 10), throttle=(8, 8, 8), step=(3, 3, 3))
    found = joined([first, second], START, 60, 1).tracks
    assert found[0, Figure.POWER] == Track([200], [90], [420])
    assert found[0, Figure.SAMPLES].mean == [30]
    assert found[0, Figure.THROTTLE].mean == [12]
    assert found[0, Figure.STEP].mean == [3]


def test_points_longer_than_minutes_pass_over_what_is_unknown() -> None:
    values = [NAN, 10.0, 20.0, NAN, NAN, NAN]
    block = Block(START, 60, 6, {(0, Figure.GPU_UTIL): Track(values, values, values)})
    found = joined([block], START - 180, 180, 4).tracks[0, Figure.GPU_UTIL]
    assert math.isnan(found.mean[0])
    assert (found.mean[1], found.least[1], found.most[1]) == (15, 10, 20)
    assert all(math.isnan(value) for value in (*found.mean[2:], *found.least[2:], *found.most[2:]))


def test_quarter_hours_fill_the_minutes_that_are_asked_for_of_them() -> None:
    block = Block(START, 900, 2, {(0, Figure.CPU): Track.flat([1.0, 2.0])})
    found = joined([block], START, 300, 6).tracks[0, Figure.CPU]
    assert found.mean == [1, 1, 1, 2, 2, 2]


def test_bands_of_many_ranks_name_those_that_differ() -> None:
    tracks = {(rank, Figure.GPU_UTIL): Track.flat([90.0 + rank % 5]) for rank in range(100)}
    tracks[41, Figure.GPU_UTIL] = Track.flat([3.0])
    tracks[7, Figure.GPU_UTIL] = Track.flat([NAN])
    block = Block(START, 60, 1, tracks)
    assert [round(band.values[0]) for band in bands(block, Figure.GPU_UTIL)] == [3, 90, 92, 94, 94]
    assert outliers(block, Figure.GPU_UTIL) == [41]


def test_an_hour_of_eight_ranks_takes_half_a_byte_a_value() -> None:
    rng = random.Random(3)
    tracks: dict[tuple[int, Figure], Track] = {}
    for rank in range(8):
        for figure, (level, noise) in {
            Figure.GPU_UTIL: (97, 2),
            Figure.SM_UTIL: (80, 3),
            Figure.MEMORY_UTIL: (45, 3),
            Figure.MEMORY_USED: (70e9, 1e8),
            Figure.POWER: (650, 25),
            Figure.TEMPERATURE: (62, 1),
            Figure.SM_CLOCK: (1900, 40),
            Figure.NVLINK: (9e10, 1e10),
            Figure.PCIE: (2e9, 5e8),
            Figure.CPU: (1.2, 0.3),
        }.items():
            looks = [[max(0.0, rng.gauss(level, noise)) for _ in range(30)] for _ in range(60)]
            means = [sum(look) / 30 for look in looks]
            tracks[rank, figure] = Track(means, [min(look) for look in looks], [max(look) for look in looks])
        tracks[rank, Figure.SAMPLES] = Track.flat([30.0] * 60)
        tracks[rank, Figure.THROTTLE] = Track.flat([4.0] * 60)
        tracks[rank, Figure.STEP] = Track.flat(float(40 * at) for at in range(60))
    size = len(pack(Block(START, 60, 60, tracks)))
    assert size < 8_300, size  # 1,000 hosts, 24 hours: 200 MB


def test_words_name_what_slows_a_gpu_down_against_its_will() -> None:
    assert throttle_words(0x1 | 0x2) == ""
    assert throttle_words(0x4 | 0x40) == "power cap, hardware thermal"
