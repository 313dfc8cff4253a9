"""The pocket model's encoder with its real networks.  What needs recordings is skipped where they are not installed."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duologue.bus.messages import Audio, Start
from duologue.models.pocket import UNIT_SAMPLES
from duologue.stage.model import History, Result, StageModel, Unit
from duologue.testing import recordings
from duologue.testing.overheard import encoder, false_alarms, overhear, recognition
from duologue.testing.signals import clicks, coughs
from duologue_encoder import pocket_moonshine, pocket_voice
from duologue_encoder.pocket_moonshine import NoRecogniser, read_tokens, unlooped
from duologue_encoder.pocket_voice import Ear, NoVoiceActivity, Voice

pytestmark = [pytest.mark.unit, pytest.mark.slow]


@pytest.fixture(scope="module")
def half() -> StageModel[Any]:
    return encoder()


def installed(read: Any, *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except recordings.Missing as missing:
        pytest.skip(f"not installed: {missing}")


def test_recorded_speech_is_understood(half: StageModel[Any]) -> None:
    spoken = [*installed(recordings.prompts, 40), *installed(recordings.read_aloud)]
    found = recognition(half, spoken)
    assert len(found.delays_s) == len(spoken) > 15, "every recording is a turn"
    assert found.word_error_rate <= 0.15, found.wrong
    assert found.transcript_errors / found.words <= 0.15, "what is shown is what was understood"
    # In units of the session's clock, so that no machine is too slow for it.
    assert np.median(found.onsets_s) <= 0.2
    assert np.percentile(found.onsets_s, 90) <= 0.3
    assert np.median(found.delays_s) <= 0.6


def test_music_stops_nothing(half: StageModel[Any]) -> None:
    for name, pcm in installed(recordings.music).items():
        found = false_alarms(half, pcm[30 * recordings.RATE : 60 * recordings.RATE])
        assert (found.worst_minute <= 1, found.texts) == (True, []), name


@pytest.mark.parametrize("level", [0.2, 0.8])
def test_neither_do_noise_and_coughs_and_keys(half: StageModel[Any], level: float) -> None:
    for pcm in (coughs(20, 1, level), clicks(20, 2), (level * 20_000 * white(20)).astype(np.int16)):
        found = false_alarms(half, pcm)
        assert (found.onsets, found.texts) == (0, [])


def test_neither_does_recorded_noise(half: StageModel[Any]) -> None:
    found = false_alarms(half, np.tile(installed(recordings.noise), 15))
    assert (found.onsets, found.texts) == (0, [])


def white(seconds: float) -> Any:
    return np.random.default_rng(0).normal(size=round(seconds * 16_000)) * 0.2


def test_an_heir_goes_on_in_the_middle_of_a_sentence(half: StageModel[Any]) -> None:
    spoken = max(installed(recordings.read_aloud), key=lambda each: len(each.pcm))
    pcm = recordings.joined([np.zeros(16_000, np.int16), spoken.pcm, np.zeros(16_000, np.int16)], 1.0)
    units = [
        Unit(n, {"root": Audio.of({"pcm": pcm[n * UNIT_SAMPLES : (n + 1) * UNIT_SAMPLES]})})
        for n in range(len(pcm) // UNIT_SAMPLES)
    ]
    whole = overhear(half, pcm)
    (turn,) = whole.turns
    middle = (turn.first + turn.end) // 2
    ledger = [
        Unit(unit.number, unit.inputs, record)
        for unit, record in zip(units[:middle], whole.records, strict=False)
    ]
    *_, state = half.open(Start(0, begin=middle), History(ledger))
    results: list[Result] = []
    for unit in units[middle:]:
        (result,) = half.step([(state, unit)])
        assert isinstance(result, Result)
        results.append(result)
    texts = [
        arrays["text"].tobytes().decode() for r in results if "text" in (arrays := r.out["llm"].arrays())
    ]
    assert texts == [turn.text]


def test_sessions_of_a_batch_hear_as_each_does_alone() -> None:
    """Sums of another order differ in the last bits; a record has three digits."""
    voice = Voice(pocket_voice.find())
    sounds = [coughs(2, 3), (white(2) * 20_000).astype(np.int16), np.zeros(32_000, np.int16)]
    alone = [[voice.hear([(ear, part)])[0] for part in units(pcm)] for pcm in sounds for ear in [Ear()]]
    ears = [Ear() for _ in sounds]
    together = [
        voice.hear(list(zip(ears, parts, strict=True)))
        for parts in zip(*(units(pcm) for pcm in sounds), strict=True)
    ]
    for row, each in enumerate(alone):
        same = [found[row] for found in together]
        assert [len(windows) for windows in same] == [len(windows) for windows in each]
        assert np.allclose(np.concatenate(same), np.concatenate(each), atol=1e-4)


def units(pcm: Any) -> list[Any]:
    return [
        pcm[at : at + UNIT_SAMPLES] for at in range(0, len(pcm) // UNIT_SAMPLES * UNIT_SAMPLES, UNIT_SAMPLES)
    ]


def test_silence_and_next_to_nothing_have_no_words() -> None:
    recogniser = pocket_moonshine.Moonshine(pocket_moonshine.find())
    for samples in (0, 1, 16_000):
        assert recogniser.recognise(np.zeros(samples, np.int16)) == ""


def test_loops_are_cut() -> None:
    assert unlooped([1, 2, 3, 1, 2]) == 5
    assert unlooped([9, 1, 2, 3, 1, 2, 3, 1, 2, 3]) == 4
    assert unlooped([5, 5, 5, 5]) == 4, "no no no no"
    assert unlooped([7, 5, 5, 5, 5, 5]) == 2
    assert unlooped([]) == 0


def test_tokens_have_a_length_of_one_byte_or_two() -> None:
    long = b"x" * 300
    assert read_tokens(b"\x03abc\x00" + bytes([128 + 300 % 128, 300 // 128]) + long) == [b"abc", b"", long]


def test_where_the_models_are_missing_it_says_what_to_do(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(
        NoRecogniser, match=r"lacks encoder_model\.ort, decoder_model_merged\.ort, tokenizer\.bin"
    ):
        pocket_moonshine.find(str(tmp_path))
    with pytest.raises(NoVoiceActivity, match="is not there"):
        pocket_voice.find(str(tmp_path / "vad.onnx"))
    monkeypatch.setattr(pocket_moonshine, "DISTRIBUTION", "absent-recogniser")
    monkeypatch.setattr(pocket_voice, "DISTRIBUTION", "absent-vad")
    for find, error in ((pocket_moonshine.find, NoRecogniser), (pocket_voice.find, NoVoiceActivity)):
        with pytest.raises(error, match=r"pip install 'duologue\[pocket\]'"):
            find()


def test_the_recogniser_is_found_without_its_package_being_imported() -> None:
    """It needs a sound system."""
    assert pocket_moonshine.find().is_dir()
    assert "moonshine_voice" not in sys.modules
