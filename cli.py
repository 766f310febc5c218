"""The ``pagedeck`` command: what it understands. What a command does is in :mod:`.commands`, imported when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from . import __version__
from .commands.serve import add_settings, check_settings, stated_settings
from .commands.suites import add_suites, add_tune
from .ipc.vocabulary import KV_EVENTS_ADDRESS, KV_REPLAY_ADDRESS, Refused


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 1 for a fault, 2 for a wrong command line, 130 for Ctrl-C."""
    # Two threads that spin while they wait make each other wait when another process wants the cores; the OpenMP
    # runtime reads this once, when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A few microseconds of spinning save most of the waking between two operations of a step; more would take the
    # processor from others.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0].startswith("-") and given[0] not in ("-h", "--help", "--version"):
        given.insert(0, "app")  # the app needs no naming, with options or without
    elif given and given[0].endswith(".pagedeck"):
        given.insert(0, "replay")  # nor does what to do with a recording
    options, rest = parser().parse_known_args(given)
    try:
        if options.command == "attach":
            more = ["--attach-bind"] if options.bind else []
            addresses = ["--attach", options.endpoint, "--attach-replay", options.replay]
            return _open_app([*addresses, "--attach-metrics", options.metrics, *more])
        if options.command == "replay":
            return _open_app(["--replay", options.file])
        if options.command == "bench" and options.suite == "open":
            from .commands.load import readable

            return _open_app(["--results", str(readable(options.file))])
        code = _open_app(rest) if options.command in (None, "app") else _run(options)
        sys.stdout.flush()  # while somebody is there to take a broken pipe
        return code
    except Refused as refusal:
        return _fault(str(refusal))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has enough of it; keep Python from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if not _expected(error):
            raise
        return _fault(str(error))


def _expected(error: Exception) -> bool:
    """Whether an error is one that an engine, or its absence, explains."""
    from .ipc.client import EngineError
    from .ipc.launch import LaunchFailed

    return isinstance(error, EngineError | LaunchFailed)


def _fault(message: str) -> int:
    print(f"pagedeck: {message}", file=sys.stderr)
    return 1


_JSON = "for programs"

# --- the command line -------------------------------------------------------------------------------------------


class _Command(argparse.ArgumentParser):
    """Says what it does not know beside its own usage; argparse would leave that to the program's, which is no help."""

    takes_others = False  # whether somebody else understands the rest

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, rest = super().parse_known_args(args, namespace)
        if rest and not self.takes_others:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return known, rest


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pagedeck",
        description="Run a language model on your own machine and see what its memory does.",
        epilog="Without a command, the app opens.",
    )
    parser.add_argument("--version", action="version", version=f"pagedeck {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Command)

    # The app understands its own options; its module loads Qt, which nothing else here needs.
    app = commands.add_parser(
        "app", help="open the app, as no command does; `app --help` lists its options", add_help=False
    )
    app.takes_others = True

    replay = commands.add_parser("replay", help="open a recording in the app", description="Open a recording.")
    replay.add_argument("file", metavar="FILE", help="as the app's record button writes it (*.pagedeck)")

    attach = commands.add_parser(
        "attach", help="show another server's prefix cache in a window", description="Show the prefix cache of vLLM, "
        "of SGLang or of `pagedeck serve --kv-events` as its KV events tell of it. It is only looked at.",
    )  # fmt: skip
    attach.add_argument(
        "endpoint", nargs="?", default=KV_EVENTS_ADDRESS, help="where it publishes (default %(default)s)"
    )
    attach.add_argument(
        "--replay", metavar="ADDRESS", nargs="?", const=KV_REPLAY_ADDRESS, default="", help="where it repeats what it "
        "published before (without an address: %(const)s)",
    )  # fmt: skip
    attach.add_argument("--metrics", metavar="URL", default="", help="its /metrics, which tell how large the cache is")
    attach.add_argument("--bind", action="store_true", help="listen at the endpoint: the server connects to it")

    serve = commands.add_parser("serve", help="run an engine in this terminal", description="Run an engine.")
    _engine_option(serve, "its name; clients find it by this (default pagedeck)", client=False)
    serve.add_argument(
        "--listen", metavar="ADDRESS", help="tcp://HOST:PORT instead of a socket file of this user; telemetry is on "
        "the port after it, and `pagedeck keys` says who else may connect",
    )  # fmt: skip
    serve.add_argument(
        "--exit-with-parent", action="store_true", help="stop when standard input closes: when the starter is gone"
    )
    serve.add_argument(
        "--private", action="store_true", help="for programs: whoever names no engine does not mean this one"
    )
    serve.add_argument(
        "--kv-events", metavar="ADDRESS", nargs="?", const=KV_EVENTS_ADDRESS, help="publish what the prefix cache "
        "stores and gives up, unencrypted, in the format of vLLM's KV events (without an address: %(const)s)",
    )  # fmt: skip
    serve.add_argument(
        "--kv-events-replay", metavar="ADDRESS", nargs="?", const=KV_REPLAY_ADDRESS, help="repeat there what a "
        "subscriber missed (without an address: %(const)s)",
    )  # fmt: skip
    serve.add_argument(
        "--preset", metavar="PRESET", help="settings for a way to use it (`pagedeck config preset` lists them); "
        "options of the command line win",
    )  # fmt: skip
    serve.add_argument(
        "--http", type=int, metavar="PORT", help="serve OpenAI's API there too, on 127.0.0.1, in a process of its own; "
        "`pagedeck gateway` does it on other addresses",
    )  # fmt: skip
    serve.add_argument(
        "--trace", metavar="FILE", help="with --http: add a line to this file for each request that was answered, "
        "without any text; `pagedeck bench run --trace FILE` repeats them",
    )  # fmt: skip
    add_settings(serve)

    gateway = commands.add_parser(
        "gateway", help="serve OpenAI's API over HTTP for an engine",
        description="Serve OpenAI's API and figures for Prometheus over HTTP, for an engine that runs, or will: the "
        "gateway waits for it, and for the next one of its name.",
    )  # fmt: skip
    _engine_option(gateway)
    gateway.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="(default %(default)s)")
    gateway.add_argument("--port", type=int, default=8000, help="0 is any free one (default %(default)s)")
    gateway.add_argument(
        "--api-key-file", metavar="FILE", help="keys of those who may ask, one a line; needed on addresses that others "
        "reach",
    )  # fmt: skip
    gateway.add_argument(
        "--api-key", action="append", default=[], metavar="KEY", help="such a key; users of this machine can see it, "
        "but not one in the environment's PAGEDECK_API_KEY",
    )  # fmt: skip
    gateway.add_argument(
        "--cors", action="append", default=[], metavar="ORIGIN", help="let web pages of this origin ask, as in "
        "https://example.org; * is any",
    )  # fmt: skip
    gateway.add_argument(
        "--trace", metavar="FILE", help="add a line to this file for each request that the engine answers, over HTTP "
        "or not, without any text; `pagedeck bench run --trace FILE` repeats them",
    )  # fmt: skip
    gateway.add_argument(
        "--exit-with-parent", action="store_true", help="stop when standard input closes: when the starter is gone"
    )
    gateway.add_argument("--fd", type=int, help=argparse.SUPPRESS)  # a socket of the starter's that listens already

    chat = commands.add_parser("chat", help="talk to the model here", description="Talk to the model in the terminal.")
    chat.add_argument("prompt", nargs="?", help="ask this alone; without it, a conversation")
    _engine_option(chat)
    chat.add_argument("--system", help="a system message that the conversation begins with")
    chat.add_argument("--max-tokens", type=int, default=512, help="the longest answer (default %(default)s)")
    chat.add_argument("--temperature", type=float, default=0.2, help="0 is greedy (default %(default)s)")
    chat.add_argument("--top-p", type=float, default=0.9, help="(default %(default)s)")
    chat.add_argument("--seed", type=int, help="the same answer every time")

    status = commands.add_parser("status", help="what the running engines do")
    _engine_option(status)
    status.add_argument("--json", action="store_true", help="for programs")

    config = commands.add_parser("config", help="see and change an engine's settings while it runs")
    actions = config.add_subparsers(dest="action", metavar="ACTION", required=True)
    get = actions.add_parser("get", help="print one setting or all")
    get.add_argument("setting", nargs="?")
    _engine_option(get)
    get.add_argument("--json", action="store_true", help="for programs")
    put = actions.add_parser("set", help="change a setting; no request is lost")
    put.add_argument("setting")
    put.add_argument("value")
    _engine_option(put)
    put.add_argument("--dry-run", action="store_true", help="say what would happen and change nothing")
    preset = actions.add_parser("preset", help="list settings for ways to use an engine, with reasons, or take some")
    preset.add_argument("preset", nargs="?", help="take this one; without it, all are listed")
    _engine_option(preset)
    preset.add_argument("--dry-run", action="store_true", help="say what would happen and change nothing")

    stop = commands.add_parser("stop", help="stop an engine")
    _engine_option(stop)
    stop.add_argument("--drain", action="store_true", help="let it finish the requests that it has")

    models = commands.add_parser("models", help="models on this machine: what they take, downloading, deleting")
    verbs = models.add_subparsers(dest="action", metavar="ACTION", required=True)
    verbs.add_parser("list", help="those on this machine").add_argument("--json", action="store_true", help=_JSON)
    inspect = verbs.add_parser(
        "show", help="what a model is and what it would take of this machine's memory, before it is downloaded",
        description="What a model is and what it would take of this machine's memory, with these settings: an "
        "estimate, from its configuration alone.",
    )  # fmt: skip
    inspect.add_argument("model", metavar="MODEL", help="as the setting of that name takes it")
    inspect.add_argument("--replaces", metavar="NAME", help="count what this running engine holds as free")
    inspect.add_argument("--json", action="store_true", help=_JSON)
    add_settings(inspect, without=("model",))
    download = verbs.add_parser("fetch", help="download a model of the hub; what an earlier try left is continued")
    download.add_argument("model", metavar="ID", help="such as owner/name, or the default model's name")
    download.add_argument("--json", action="store_true", help="lines for programs")
    delete = verbs.add_parser("remove", help="delete a model's files from this machine")
    delete.add_argument("model", metavar="MODEL", help="as `pagedeck models list` names it")
    delete.add_argument("--json", action="store_true", help=_JSON)

    desktop = commands.add_parser(
        "desktop", help="put the app among the desktop's programs, with its icon and its file type, or take it away"
    )
    desktop.add_argument("action", choices=("install", "remove"), help="for this user")

    keys = commands.add_parser("keys", help="who else may connect to engines that listen on TCP")
    actions = keys.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="make a key, and the one file that its client connects with")
    add.add_argument("key", metavar="NAME", help="whose it is; shown beside its requests")
    add.add_argument(
        "--operator", action="store_true", help="it may do what you may: see and cancel all requests, read their "
        "texts, change settings and stop the engine; without this, a key's clients have only their own requests",
    )  # fmt: skip
    add.add_argument(
        "--address", metavar="ADDRESS", help="tcp://HOST:PORT, as the client reaches the engine (default: where it "
        "listens, 127.0.0.1 for 0.0.0.0: a client on another machine needs this machine's address there)",
    )  # fmt: skip
    add.add_argument("--output", metavar="FILE", help="the file to hand over (default NAME.json)")
    add.add_argument("-n", "--name", dest="engine", metavar="NAME", help="which engine (default: the only one)")
    actions.add_parser("list", help="print the keys that are accepted")
    revoke = actions.add_parser("revoke", help="accept a key no more, and cut its connections")
    revoke.add_argument("key", metavar="NAME")

    doctor = commands.add_parser("doctor", help="what this machine has, what is missing, and what to do about it")
    doctor.add_argument("--json", action="store_true", help="for programs")

    bench = commands.add_parser("bench", help="measure")
    add_suites(bench)
    trace = commands.add_parser("trace", help="write down what is asked of an engine, without text, to repeat it")
    trace.add_argument("file", metavar="FILE", help="to be written, as JSON lines")
    _engine_option(trace)
    trace.add_argument("--minutes", type=float, help="how long (default: until Ctrl-C, or until the engine ends)")

    add_tune(commands.add_parser("tune", help="find the settings that suit a load, with evidence"))
    return parser


def _engine_option(
    parser: argparse.ArgumentParser, meaning: str = "which engine (default: the only one)", *, client: bool = True
) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-n", "--name", dest="engine", metavar="NAME", help=meaning)
    if client:
        which.add_argument(
            "--connection", dest="engine", metavar="FILE", type=os.path.abspath,  # so that it is none of a name
            help="the engine of this connection file, or of one that `pagedeck keys add` made",
        )  # fmt: skip


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "serve":
            from .commands.serve import serve

            return _leave(serve(options))
        case "gateway":
            from .commands.gateway import gateway

            return gateway(options)
        case "chat":
            return _chat(options)
        case "status":
            from .commands.engines import show_status

            return show_status(options.engine, as_json=options.json)
        case "stop":
            from .commands.engines import stop

            return stop(options.engine, drain=options.drain)
        case "config":
            return _config(options)
        case "desktop":
            from .commands import desktop

            return desktop.install() if options.action == "install" else desktop.remove()
        case "keys":
            return _keys(options)
        case "models":
            return _models(options)
        case "doctor":
            from .commands.doctor import doctor

            return doctor(as_json=options.json)
        case "trace":
            from .commands.trace import trace

            return trace(options.engine, options.file, minutes=options.minutes)
        case "tune":
            from .commands.tune import tune

            return tune(**{name: value for name, value in vars(options).items() if name != "command"})
        case _:
            return _bench(options)


def _leave(code: int) -> NoReturn:
    """End at once: all is said and closed, and taking torch apart would take seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _open_app(arguments: Sequence[str]) -> int:
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    if sys.platform == "linux" and not any(os.environ.get(name) for name in screens):
        # Qt would abort the process.
        raise Refused("There is no display for the app; `pagedeck --help` lists the commands that need none.")
    try:
        from .gui import app
    except ImportError as error:
        # Qt's modules are shared libraries that want the system's; a bare server lacks some.
        raise Refused(f"The app cannot open ({error}); `pagedeck doctor` says what is missing.") from error
    _check_settings(app.parser(), arguments)
    return app.main(arguments)


def _check_settings(app: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Refuse what neither the app nor an engine understands while there is somebody at the terminal to read it."""
    _, others = app.parse_known_args(arguments)
    check_settings(parser().parse_args(["serve", *others]))


def _chat(options: argparse.Namespace) -> int:
    from .commands.chat import chat
    from .ipc.vocabulary import SamplingParams

    sampling = SamplingParams(
        max_tokens=options.max_tokens, temperature=options.temperature, top_p=options.top_p, seed=options.seed
    )
    sampling.check()
    return chat(options.engine, options.prompt, system=options.system, sampling=sampling)


def _keys(options: argparse.Namespace) -> int:
    from .commands import keys

    if options.action == "add":
        return keys.add(
            options.key,
            operator=options.operator,
            engine=options.engine,
            address=options.address,
            output=options.output,
        )
    return keys.show() if options.action == "list" else keys.revoke(options.key)


def _config(options: argparse.Namespace) -> int:
    from .commands import presets, settings

    if options.action == "get":
        return settings.show(options.engine, options.setting, as_json=options.json)
    if options.action == "set":
        return settings.change(options.engine, options.setting, options.value, dry_run=options.dry_run)
    if options.preset is None:
        return presets.show()
    return presets.apply(options.engine, options.preset, dry_run=options.dry_run)


def _models(options: argparse.Namespace) -> int:
    from .commands import models

    match options.action:
        case "list":
            return models.show_all(as_json=options.json)
        case "show":
            settings = {name: value for name, value in stated_settings(options).items() if name != "model"}
            return models.show(options.model, settings, options.replaces, as_json=options.json)
        case "fetch":
            return models.download(options.model, as_json=options.json)
        case _:
            return models.delete(options.model, as_json=options.json)


def _bench(options: argparse.Namespace) -> int:
    from .commands import bench

    if options.suite == "simulate":
        return bench.simulate(
            num_blocks=options.blocks,
            block_size=options.block_size,
            num_host_blocks=options.host_blocks,
            live=options.live,
            requests=options.requests,
            token_budget=options.token_budget,
            load=options.load,
            seed=options.seed,
            as_json=options.json,
        )
    chosen = {name: value for name, value in vars(options).items() if name not in ("command", "suite")}
    if options.suite in ("run", "compare", "report", "summary"):
        from .commands import load

        return int(getattr(load, options.suite)(**chosen))
    if options.suite == "claims":
        from .commands.claims import claims

        return claims(**chosen)
    return int(getattr(bench, options.suite)(**chosen))
