"""The playground: sending, streaming, figures, samples, stopping, regenerating, the load button."""

from __future__ import annotations

import pytest
from pagedeck.gui import i18n
from pagedeck.gui.playground import samples
from pagedeck.gui.playground.page import Playground
from pagedeck.ipc.protocol import Accepted, EngineStatus, Failed, Finished, SampleResult, Submit, Tokens
from pagedeck.ipc.vocabulary import PRIORITIES
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from .scripted_link import ScriptedLink


@pytest.fixture
def page(link: ScriptedLink, languages: i18n.Languages, qtbot: QtBot) -> Playground:
    made = Playground(link, languages)
    qtbot.addWidget(made)
    made.resize(900, 600)
    made.show()
    return made


def ask(page: Playground, qtbot: QtBot, text: str = "Hello") -> None:
    qtbot.keyClicks(page.prompt, text)
    qtbot.keyClick(page.prompt, Qt.Key.Key_Return)


def last(link: ScriptedLink) -> Submit:
    message = link.last(Submit)[0]
    assert isinstance(message, Submit)
    return message


def finish(link: ScriptedLink, tokens: int = 2, samples: int = 1) -> None:
    results = [SampleResult(place, "stop", tokens) for place in range(samples)]
    done = Finished(
        samples=results, prompt_tokens=20, cached_tokens=8, output_tokens=tokens * samples, ttft_s=0.25, e2e_s=0.5
    )
    link.answer(Submit, done)


def test_the_conversation_stands_in_the_middle_of_a_wide_window(page: Playground, qtbot: QtBot) -> None:
    page.resize(2200, 1000)
    scroll, panel = page._scroll, page.parameters.parentWidget()
    qtbot.waitUntil(lambda: panel.geometry().right() >= page.width() - 2)
    left = scroll.mapTo(page, scroll.rect().topLeft()).x()
    right = panel.geometry().left() - scroll.mapTo(page, scroll.rect().topRight()).x()
    assert left > 300 and abs(left - right) <= 4


def test_enter_sends_and_shift_enter_is_a_newline(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    qtbot.keyClicks(page.prompt, "one")
    qtbot.keyClick(page.prompt, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(page.prompt, "two")
    assert link.count(Submit) == 0
    qtbot.keyClick(page.prompt, Qt.Key.Key_Return)
    messages = last(link).messages
    assert messages is not None
    assert [(m.role, m.content) for m in messages] == [("user", "one\ntwo")]
    assert page.prompt.toPlainText() == ""


def test_parameters_reach_the_request(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    parameters = page.parameters
    parameters.system.setPlainText("Be brief.")
    parameters.temperature.setValue(0.0)
    parameters.top_p.setValue(0.5)
    parameters.max_tokens.setValue(33)
    parameters.seed.setText("7")
    parameters.priority.setCurrentIndex(parameters.priority.findData("batch"))
    ask(page, qtbot)
    message = last(link)
    assert message.messages is not None
    assert (message.messages[0].role, message.messages[0].content) == ("system", "Be brief.")
    sampling = message.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.seed) == (0.0, 0.5, 33, 7)
    assert message.priority == "batch"


def test_a_seed_that_is_no_number_is_said_and_nothing_is_sent(
    page: Playground, link: ScriptedLink, qtbot: QtBot
) -> None:
    page.parameters.seed.setText("x")
    with qtbot.waitSignal(page.said):
        ask(page, qtbot)
    assert link.count(Submit) == 0
    assert page.prompt.toPlainText() == "Hello"


def test_text_streams_as_markdown_with_figures_at_the_end(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    ask(page, qtbot)
    answer = page.turns[0].answer
    link.answer(Submit, Accepted(number=5, prompt_tokens=20))
    link.answer(Submit, Tokens(token_ids=[1], text="Some **bold"))
    link.answer(Submit, Tokens(token_ids=[2], text="** text"))
    view = answer.samples[0].view
    qtbot.waitUntil(lambda: view.toPlainText() == "Some bold text")
    finish(link)
    figures = answer._figures.text().replace("\u00a0", " ")
    assert "TTFT 0.25 s" in figures
    assert "2 tokens" in figures
    assert "4.00 tok/s" in figures
    assert "8 of 20 prompt tokens from the cache" in figures
    with qtbot.waitSignal(page.shown) as shown:
        qtbot.mouseClick(answer.map_button, Qt.MouseButton.LeftButton)
    assert shown.args == [5]


def test_streaming_is_rendered_by_the_clock_not_by_the_token(
    page: Playground, link: ScriptedLink, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(page, qtbot)
    view = page.turns[0].answer.samples[0].view
    rendered: list[str] = []
    monkeypatch.setattr(type(view), "setMarkdown", lambda self, text: rendered.append(text))
    for token in range(500):
        link.answer(Submit, Tokens(token_ids=[token], text="x"))
    qtbot.waitUntil(lambda: bool(rendered) and len(rendered[-1]) == 500)
    assert len(rendered) < 20


def test_conversation_goes_on_and_regenerate_asks_again(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    ask(page, qtbot, "One")
    link.answer(Submit, Tokens(token_ids=[1], text="First"))
    finish(link)
    ask(page, qtbot, "Two")
    messages = last(link).messages
    assert messages is not None
    assert [m.content for m in messages] == ["One", "First", "Two"]
    link.answer(Submit, Tokens(token_ids=[1], text="Second"))
    finish(link)
    qtbot.mouseClick(page.regenerate_button, Qt.MouseButton.LeftButton)
    assert link.count(Submit) == 3
    messages = last(link).messages
    assert messages is not None
    assert [m.content for m in messages] == ["One", "First", "Two"]
    assert len(page.turns) == 2


def test_what_cannot_be_asked_again_stays(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    ask(page, qtbot)
    link.answer(Submit, Tokens(token_ids=[1], text="Kept"))
    finish(link)
    for seed in ("x", "9" * 30):
        page.parameters.seed.setText(seed)
        qtbot.mouseClick(page.regenerate_button, Qt.MouseButton.LeftButton)
        assert [turn.answer.text for turn in page.turns] == ["Kept"] and link.count(Submit) == 1


def test_samples_stand_side_by_side_and_one_is_gone_on_with(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    page.parameters.samples.setValue(3)
    ask(page, qtbot)
    for place, text in enumerate(("a", "b", "c")):
        link.answer(Submit, Tokens(index=place, token_ids=[1], text=text))
    finish(link, samples=3)
    answer = page.turns[0].answer
    assert [s.view.source_text for s in answer.samples] == ["a", "b", "c"]
    answer.samples[2].choose.click()
    ask(page, qtbot, "More")
    messages = last(link).messages
    assert messages is not None
    assert [m.content for m in messages] == ["Hello", "c", "More"]


def test_escape_stops_what_streams_and_a_second_prompt_waits(
    page: Playground, link: ScriptedLink, qtbot: QtBot
) -> None:
    ask(page, qtbot)
    ask(page, qtbot, "again")
    assert link.count(Submit) == 1
    qtbot.keyClick(page.prompt, Qt.Key.Key_Escape)
    assert link.cancelled == [page.turns[0].answer.id]


def test_a_failure_is_said_where_it_happened(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    ask(page, qtbot)
    link.answer(Submit, Failed(code="too_long", message="The prompt has 9,000 tokens; the context holds 4,096."))
    answer = page.turns[0].answer
    assert answer._error.isVisibleTo(answer)
    assert "9,000" in answer._error.text()
    assert not page.busy


def test_a_model_without_a_chat_template_gets_plain_text(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    assert link.view.status is not None
    link.view.status.chat_template = False
    ask(page, qtbot)
    assert (last(link).prompt, last(link).messages) == ("Hello", None)


def test_fill_sends_eight_requests_of_all_classes_and_stop_ends_them(
    page: Playground, link: ScriptedLink, qtbot: QtBot
) -> None:
    qtbot.mouseClick(page.fill_button, Qt.MouseButton.LeftButton)
    sent = [m for m, _ in link.sent if isinstance(m, Submit)]
    assert len(sent) == 8
    assert {m.priority for m in sent} == set(PRIORITIES)
    assert not page.fill_button.isEnabled()
    link.answer(Submit, Failed(code="queue_full", message="full"))
    assert "1 of 8" in page.load_label.text()
    page.stop()
    assert len(link.cancelled) == 7


def test_the_server_is_kept_full_until_one_stops_it(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    page.keep_full.click()
    page.fill()
    first = last(link)
    for ended in range(1, 4):
        finish(link)
        assert link.count(Submit) == 8 + ended
        assert last(link).prompt == first.prompt and last(link).messages == first.messages
    assert "3" in page.load_label.text()
    page.stop()
    assert len(link.cancelled) == 8 and not page.keep_full.isChecked()
    finish(link)  # it ended before it heard that it was to stop
    assert link.count(Submit) == 11
    page.keep_full.click()
    link.answer(Submit, Failed(code="queue_full", message="full"))
    assert link.count(Submit) == 11  # what fails is not tried for ever


def test_the_load_fits_the_models_context() -> None:
    status = EngineStatus("n", "ready", "m", "e", 1, "0", context_length=256)
    for submit in samples.fill(status):
        assert submit.prompt is not None
        assert len(submit.prompt) + submit.sampling.max_tokens <= 256


def test_sample_prompts_fill_the_field(page: Playground) -> None:
    actions = page._samples_menu.actions()
    assert len(actions) == len(samples.samples()) > 2
    actions[3].trigger()
    assert page.prompt.toPlainText() == samples.samples()[3].prompt
    assert page.parameters.samples.value() == samples.samples()[3].n


def test_clear_begins_anew(page: Playground, link: ScriptedLink, qtbot: QtBot) -> None:
    ask(page, qtbot)
    page.clear()
    assert page.turns == []
    assert page.empty.isVisible()
    assert len(link.cancelled) == 1
