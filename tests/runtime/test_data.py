"""Real input: how it is read, split and refused, and how samples are shared among ranks."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from geosim.errors import UsageError
from runtime import data, shuffle

SEQUENCE = 32
SHUFFLED = [4, 3, 6, 2, 1, 0, 8, 7, 9, 5]


def write_folder(root, files=60, repeat=40):
    """Files whose every line names its file, so that a byte's origin can be told."""
    for number in range(files):
        path = root / f"part{number % 3}" / f"file{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"<{number:03}> line of text\n".encode() * repeat)
    return root


@pytest.fixture
def corpus(tmp_path):
    return data.load(write_folder(tmp_path))


@pytest.fixture
def numbered(tmp_path):
    """A corpus whose windows are all different: its bytes count upwards in pairs."""
    path = tmp_path / "numbers.txt"
    pairs = np.array([(high, low) for high in range(1, 256) for low in range(1, 256)], np.uint8)
    path.write_bytes(pairs.tobytes())
    return data.load(path)


def deny(path, *_):
    raise PermissionError(13, "Permission denied", str(path))


def batches(corpus, steps, world, batch_size, seed=0):
    """[steps * world * batch_size, SEQUENCE], in step and rank order."""
    return torch.cat(
        [
            corpus.batch(
                step,
                rank=rank,
                world=world,
                batch_size=batch_size,
                sequence=SEQUENCE,
                seed=seed,
            )[0]
            for step in steps
            for rank in range(world)
        ]
    )


class TestReading:
    def test_every_byte_of_a_folder_is_in_one_split_and_in_order(self, tmp_path, corpus):
        for split, files in [
            (corpus.train, corpus.train_files),
            (corpus.validation, corpus.validation_files),
        ]:
            assert split.dtype == np.uint8
            assert not split.flags.writeable
            assert list(files) == sorted(files)
            assert split.tobytes() == b"".join((tmp_path / name).read_bytes() for name in files)
        assert len(corpus.train_files) + len(corpus.validation_files) == 60

    def test_no_file_trains_and_validates(self, corpus):
        def marks(split):
            return {line[:5] for line in split.tobytes().splitlines()}

        assert len(marks(corpus.train)) == len(corpus.train_files)
        assert not marks(corpus.train) & marks(corpus.validation)

    def test_about_five_percent_of_many_files_validate(self):
        names = {f"module{number}.py": 5000 for number in range(4000)}
        assert 0.04 < len(data._held_out(names)) / 4000 < 0.06

    def test_a_new_file_moves_no_other_file(self):
        names = {f"module{number}.py": 5000 for number in range(400)}
        before = data._held_out(names)
        after = data._held_out(names | {"new.py": 5000})
        assert before == after - {"new.py"}

    @pytest.mark.parametrize("files", [2, 3, 5])
    def test_a_folder_of_few_files_still_has_both_splits(self, tmp_path, files):
        corpus = data.load(write_folder(tmp_path, files, repeat=2000))
        assert corpus.train_files
        assert corpus.validation_files

    def test_validation_takes_more_files_until_it_is_large_enough(self):
        chosen = data._held_out({f"module{number}.py": 100 for number in range(40)})
        assert len(chosen) == 11

    def test_one_file_always_trains(self):
        assert len(data._held_out({"a.txt": 10, "b.txt": 10, "c.txt": 10})) == 2

    def test_one_file_is_split_by_position(self, tmp_path):
        text = bytes(range(1, 251)) * 200
        (tmp_path / "only.txt").write_bytes(text)
        corpus = data.load(tmp_path / "only.txt")
        assert corpus.train.tobytes() == text[:47500]
        assert corpus.validation.tobytes() == text[47500:]
        assert data.load(tmp_path).fingerprint == corpus.fingerprint

    def test_hidden_and_binary_files_are_left_out(self, tmp_path):
        before = data.load(write_folder(tmp_path)).fingerprint
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "config.txt").write_text("text" * 5000)
        (tmp_path / ".hidden").write_text("text" * 5000)
        (tmp_path / "weights.bin").write_bytes(b"\x93NUMPY\x00" * 5000)
        assert data.load(tmp_path).fingerprint == before

    def test_the_fingerprint_sees_one_changed_byte_and_not_where_the_data_lies(self, tmp_path):
        here = write_folder(tmp_path / "here")
        there = write_folder(tmp_path / "there")
        assert data.load(here).fingerprint == data.load(there).fingerprint
        for name in (data.load(here).train_files[0], data.load(here).validation_files[0]):
            before = data.load(there).fingerprint
            path = there / name
            path.write_bytes(b"!" + path.read_bytes()[1:])
            assert data.load(there).fingerprint != before

    def test_the_standard_library_is_python_source_in_plenty(self):
        corpus = data.load()
        assert len(corpus.train) + len(corpus.validation) > 5e6
        assert 0.02 < len(corpus.validation) / len(corpus.train) < 0.1
        files = corpus.train_files + corpus.validation_files
        assert "dataclasses.py" in files
        assert "json/decoder.py" in files
        assert all(name.endswith(".py") for name in files)
        assert not any("site-packages" in name or "_sysconfigdata" in name for name in files)
        assert b"def dataclass(" in corpus.train.tobytes() + corpus.validation.tobytes()


class TestSampling:
    def test_targets_are_the_tokens_one_byte_on(self, corpus):
        tokens, targets = corpus.batch(3, rank=1, world=2, batch_size=4, sequence=SEQUENCE, seed=5)
        assert tokens.shape == targets.shape == (4, SEQUENCE)
        assert tokens.dtype == targets.dtype == torch.int64
        assert torch.equal(tokens[:, 1:], targets[:, :-1])
        text = corpus.train.tobytes()
        for row, ahead in zip(tokens.tolist(), targets.tolist(), strict=True):
            assert bytes([*row, ahead[-1]]) in text

    def test_a_batch_is_a_pure_function_of_its_arguments(self, corpus):
        once = batches(corpus, range(6), world=2, batch_size=4)
        assert torch.equal(once[3 * 8 :], batches(corpus, range(3, 6), world=2, batch_size=4))

    @pytest.mark.parametrize("world", [1, 2, 3, 4, 12])
    def test_the_global_batch_is_the_same_however_many_ranks_share_it(self, corpus, world):
        alone = batches(corpus, range(4), world=1, batch_size=12)
        assert torch.equal(batches(corpus, range(4), world, batch_size=12 // world), alone)

    def test_an_epoch_visits_every_window_once(self, numbered):
        windows = len(numbered.train) // SEQUENCE - 1
        rows = batches(numbered, range(-(-windows // 8)), world=2, batch_size=4)[:windows]
        text = numbered.train.tobytes()
        starts = [text.index(bytes(row)) for row in rows.tolist()]
        assert len(set(starts)) == windows
        assert len({start % SEQUENCE for start in starts}) == 1

    def test_the_next_epoch_has_another_order_and_other_cuts(self, numbered):
        windows = len(numbered.train) // SEQUENCE - 1
        text = numbered.train.tobytes()
        rows = batches(numbered, range(2), world=1, batch_size=windows)
        starts = np.array([text.index(bytes(row)) for row in rows.tolist()]).reshape(2, windows)
        assert len(set((starts % SEQUENCE).flat)) == 2
        order = starts // SEQUENCE
        assert not np.array_equal(order[0], order[1])
        assert np.array_equal(np.sort(order[0]), np.sort(order[1]))

    def test_the_seed_changes_the_order(self, corpus):
        one, two = (batches(corpus, [0], world=1, batch_size=8, seed=seed) for seed in (1, 2))
        assert not torch.equal(one, two)

    def test_the_draw_is_fixed_for_good(self):
        key = shuffle.counter(-1)
        slots = np.arange(10, dtype=np.uint64)
        assert shuffle.mix(np.zeros(1, np.uint64))[0] == 0xE220A8397B1DCDAF
        assert shuffle.shuffled(slots, 10, np.repeat(key, 10)).tolist() == SHUFFLED

    @pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 17, 64, 1000, 4097])
    def test_shuffling_is_a_permutation(self, size):
        slots = np.arange(size, dtype=np.uint64)
        keys = np.repeat(shuffle.counter(42), size)
        assert sorted(shuffle.shuffled(slots, size, keys).tolist()) == list(range(size))

    def test_shuffling_leaves_no_trace_of_the_order(self):
        size = 20_000
        keys = np.repeat(shuffle.counter(42), size)
        order = shuffle.shuffled(np.arange(size, dtype=np.uint64), size, keys).astype(float)
        bound = 4 / size**0.5
        assert abs(np.corrcoef(order, np.arange(size))[0, 1]) < bound
        assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < bound

    def test_impossible_ranks_are_refused(self, corpus):
        with pytest.raises(ValueError, match="rank=2, world=2"):
            corpus.batch(0, rank=2, world=2, batch_size=1, sequence=8, seed=0)


class TestValidation:
    def test_batches_are_fixed_and_span_the_split(self, corpus):
        first = list(corpus.validation_batches(3, batch_size=4, sequence=SEQUENCE))
        again = list(corpus.validation_batches(3, batch_size=4, sequence=SEQUENCE))
        assert [tokens.shape for tokens, _ in first] == [(4, SEQUENCE)] * 3
        for (tokens, targets), (same_tokens, same_targets) in zip(first, again, strict=True):
            assert torch.equal(tokens, same_tokens)
            assert torch.equal(targets, same_targets)
            assert torch.equal(tokens[:, 1:], targets[:, :-1])
        text = corpus.validation.tobytes()
        assert bytes(first[0][0][0].tolist()) == text[:SEQUENCE]
        assert bytes(first[-1][1][-1].tolist()) == text[-SEQUENCE:]

    def test_one_window_starts_at_the_first_byte(self, corpus):
        ((tokens, _),) = corpus.validation_batches(1, batch_size=1, sequence=SEQUENCE)
        assert bytes(tokens[0].tolist()) == corpus.validation.tobytes()[:SEQUENCE]


class TestRefusals:
    def refused(self, path, *parts):
        with pytest.raises(UsageError) as caught:
            data.load(path)
        message = str(caught.value)
        assert "\n" not in message
        for part in (str(path), *parts):
            assert part in message
        with pytest.raises(UsageError) as checked:
            data.check(path, SEQUENCE)
        assert str(checked.value) == message

    def test_missing(self, tmp_path):
        self.refused(tmp_path / "nowhere", "does not exist", "--data")

    def test_empty_file(self, tmp_path):
        (tmp_path / "empty.txt").touch()
        self.refused(tmp_path / "empty.txt", "too small", "20480 bytes")

    def test_empty_folder(self, tmp_path):
        self.refused(tmp_path, "no text files", "--data")

    def test_too_small_a_file(self, tmp_path):
        (tmp_path / "small.txt").write_text("x" * 20_000)
        self.refused(tmp_path / "small.txt", "too small, 19000 bytes", "20480 bytes")

    def test_too_small_a_folder(self, tmp_path):
        self.refused(write_folder(tmp_path, files=4, repeat=10), "too small", "20480 bytes")

    def test_binary_file(self, tmp_path):
        (tmp_path / "weights.txt").write_bytes(bytes(50_000))
        self.refused(tmp_path / "weights.txt", "is not text")

    def test_a_device_is_no_file(self):
        self.refused(Path("/dev/zero"), "not a regular file")

    def test_broken_link(self, tmp_path):
        write_folder(tmp_path)
        (tmp_path / "broken.txt").symlink_to(tmp_path / "nowhere")
        self.refused(tmp_path, "broken.txt", "broken link")

    def test_unreadable_file(self, tmp_path, monkeypatch):
        write_folder(tmp_path)
        monkeypatch.setattr(Path, "open", deny)
        self.refused(tmp_path, "file000.txt", "Permission denied", "--data")

    def test_unreadable_folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "scandir", deny)
        self.refused(tmp_path, "Permission denied", "--data")

    def test_sequences_longer_than_the_text(self, corpus):
        with pytest.raises(UsageError, match="to train on, too few for sequences of 60000"):
            corpus.batch(0, rank=0, world=1, batch_size=1, sequence=60_000, seed=0)
        with pytest.raises(UsageError, match="to validate on, too few for sequences of 60000"):
            corpus.validation_batches(1, batch_size=1, sequence=60_000)

    @pytest.mark.parametrize("files", [1, 60])
    def test_a_check_refuses_sequences_that_reading_would(self, tmp_path, files):
        corpus = data.load(write_folder(tmp_path, files=files, repeat=2400 // files))
        train, held = len(corpus.train), len(corpus.validation)
        data.check(tmp_path, held - 1)
        with pytest.raises(UsageError, match=f"has {held} bytes to validate on, too few for sequences of"):
            data.check(tmp_path, held)
        with pytest.raises(UsageError, match=f"has {train} bytes to train on"):
            data.check(tmp_path, train)
