"""What ``pagedeck bench`` understands. What a suite does is in :mod:`.bench`, :mod:`.load` and their like."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..engine.config import EngineConfig

PEERS_HELP = """\
Measure this engine and others on one load: the same prompts of 16 to 512 tokens, the same output lengths of 16 to 256,
all requests there at the start, greedy, the same number of threads, one system after the other.

transformers comes with Pagedeck. The two others you prepare once; what that takes is not measured.

OpenVINO GenAI, in an environment of its own:
  python -m venv openvino && openvino/bin/pip install openvino-genai "optimum-intel[openvino]"
  openvino/bin/optimum-cli export openvino --task text-generation-with-past --weight-format fp32 -m MODEL exported
  pagedeck bench peers --openvino-model exported --openvino-python openvino/bin/python
MODEL is a folder with safetensors; the default model's is in Pagedeck's cache, below `models`.

llama.cpp's server, with as many slots as there are requests and room for all of them in its context:
  llama-server -m FILE.gguf --threads 2 --parallel 32 --ctx-size 32768 --port 8080
  pagedeck bench peers --llama-url http://127.0.0.1:8080
The default model's GGUF file is in Pagedeck's cache."""


def add_suites(parser: argparse.ArgumentParser) -> None:
    """Give ``pagedeck bench`` its suites."""
    suites = parser.add_subparsers(dest="suite", metavar="SUITE", required=True)
    quick = suites.add_parser("quick", help="this engine against transformers.generate, same prompts, same threads")
    quick.add_argument("--requests", type=int, default=16, help="(default %(default)s)")
    quick.add_argument("--threads", type=int, help="CPU threads of each system (default: one a core)")
    quick.add_argument("--seed", type=int, default=0, help="of the prompts (default %(default)s)")
    quick.add_argument("--output", default="bench-quick.json", help="where results go (default %(default)s)")
    peers = suites.add_parser(
        "peers",
        help="this engine against transformers, OpenVINO GenAI and llama.cpp, same prompts, same threads",
        description=PEERS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    peers.add_argument("--requests", type=int, default=32, help="(default %(default)s)")
    peers.add_argument("--threads", type=int, help="CPU threads of each system (default: one a core)")
    peers.add_argument("--seed", type=int, default=3, help="of the prompts (default %(default)s)")
    peers.add_argument(
        "--peers", dest="chosen", metavar="NAMES", help="some of one-by-one, static, continuous, openvino and llama, "
        "separated by commas (default: all that the options below allow)",
    )  # fmt: skip
    peers.add_argument(
        "--setting", dest="settings", action="append", default=[], metavar="NAME=VALUE", help="a setting of our engine"
    )
    _openvino_options(peers)
    peers.add_argument("--llama-url", metavar="URL", help="of llama.cpp's server, as in http://127.0.0.1:8080")
    peers.add_argument("--llama-precision", metavar="TEXT", default="as served", help="what its file holds, as in Q4_1")
    peers.add_argument("--output", default="bench-peers.json", help="where results go (default %(default)s)")
    for name, output, meaning in (
        ("scaling", "bench-scaling.json", "tokens/s against the batch, step time against the context"),
        ("profile", "bench-profile.json", "what a step's time goes to, at batches of 1, 8 and 32"),
    ):
        suite = suites.add_parser(name, help=meaning)
        suite.add_argument("--threads", type=int, help="CPU threads (default: one a core)")
        suite.add_argument(
            "--setting",
            dest="settings",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a setting of the engine",
        )
        suite.add_argument("--output", default=output, help="where results go (default %(default)s)")
    simulate = suites.add_parser(
        "simulate", help="scheduler and cache at work on a simulated device: utilisation, fairness, and what they cost"
    )
    simulate.add_argument("--blocks", type=int, default=200_000, help="of the device pool (default %(default)s)")
    simulate.add_argument("--block-size", type=int, default=16, help="tokens in a block (default %(default)s)")
    simulate.add_argument("--host-blocks", type=int, default=20_000, help="of the host pool (default %(default)s)")
    simulate.add_argument("--live", type=int, default=2_000, help="the most sequences in a step (default %(default)s)")
    simulate.add_argument("--requests", type=int, default=50_000, help="(default %(default)s)")
    simulate.add_argument("--token-budget", type=int, default=8_192, help="tokens in a step (default %(default)s)")
    simulate.add_argument(
        "--load", type=float, default=1.05, help="arriving work against what the device can do (default %(default)s)"
    )
    simulate.add_argument("--seed", type=int, default=0, help="of the requests (default %(default)s)")
    simulate.add_argument("--json", action="store_true", help="for programs")
    _add_loads(suites)


def add_tune(parser: argparse.ArgumentParser) -> None:
    """Give ``pagedeck tune`` its options."""
    _model_option(parser)
    _load_options(parser)
    parser.add_argument(
        "--objective",
        help="throughput, latency or goodput (default: goodput where a limit is stated; throughput where all requests "
        "are there at once or wait for one another; else latency)",
    )
    _limit_options(parser)
    parser.add_argument("--minutes", type=float, default=15.0, help="the longest search (default %(default)g)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: one a core)")
    parser.add_argument(
        "--apply", metavar="ENGINE", nargs="?", const="", help="set what was chosen on a running engine (default: the "
        "only one); a search that has ended is not repeated for it",
    )  # fmt: skip
    parser.add_argument("--undo", action="store_true", help="take back what --apply did last, and do nothing else")
    parser.add_argument(
        "--output", default="tune.json", help="where results go; a search that was interrupted goes on from there "
        "(default %(default)s)",
    )  # fmt: skip


def _model_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", default=EngineConfig().model, help="as the setting of that name takes it (default %(default)s)"
    )


def _load_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load", default="chat", help="chat, multi-turn, documents, batch, burst or mixed (default %(default)s)"
    )
    parser.add_argument("--trace", metavar="FILE", help="repeat a trace instead: Pagedeck's, BurstGPT's or Mooncake's")
    parser.add_argument("--requests", type=int, default=40, help="(default %(default)s)")
    parser.add_argument(
        "--arrivals",
        metavar="HOW",
        help="at-once, poisson:RATE, burst:SIZE:SECONDS or closed:CLIENTS (default: as the load is)",
    )
    parser.add_argument(
        "--speed", type=float, default=1.0, help="how much faster than a trace was (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the load (default %(default)s)")


def _openvino_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--openvino-model", metavar="FOLDER", help="the model as optimum exported it for OpenVINO")
    parser.add_argument(
        "--openvino-python", metavar="PROGRAM", default=sys.executable, help="a Python that has openvino-genai "
        "(default: this one)",
    )  # fmt: skip
    parser.add_argument(
        "--openvino-precision", metavar="TEXT", default="as exported", help="what its weights are, as in int8"
    )


def _limit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ttft-limit", type=float, metavar="SECONDS", help="a first token later than this is not good")
    parser.add_argument(
        "--itl-limit", type=float, metavar="SECONDS", help="nor are tokens (95 %% of them) further apart"
    )


def _add_loads(suites: Any) -> None:
    """Loads of one's own, and what became of them."""
    run = suites.add_parser("run", help="a load on this engine, on it with one thing off, and on others")
    _model_option(run)
    _load_options(run)
    run.add_argument(
        "--systems",
        default="pagedeck",
        metavar="NAMES",
        help="some of pagedeck, contiguous, no-sharing, no-swap, fifo, transformers' static, one-by-one and "
        "continuous, openvino, and URLs of servers with OpenAI's completions of the same model (llama.cpp, vLLM, "
        "SGLang), separated by commas (default %(default)s); `pagedeck bench peers --help` says how to prepare them",
    )
    _openvino_options(run)
    run.add_argument(
        "--server-precision", metavar="TEXT", default="as served", help="what the weights of such servers are"
    )
    run.add_argument("--repeat", type=int, default=1, help="runs of each system, in turns (default %(default)s)")
    run.add_argument("--threads", type=int, help="CPU threads of each system (default: one a core)")
    run.add_argument(
        "--setting", dest="settings", action="append", default=[], metavar="NAME=VALUE", help="a setting of the engine"
    )
    _limit_options(run)
    run.add_argument("--output", default="bench-run.json", help="where results go (default %(default)s)")
    compare = suites.add_parser("compare", help="what changed between two results, beyond noise")
    compare.add_argument("before", metavar="BEFORE")
    compare.add_argument("after", metavar="AFTER")
    compare.add_argument(
        "--fail-on-regression", dest="fail", action="store_true", help="exit with 1 if a figure is worse beyond noise"
    )
    compare.add_argument("--json", dest="as_json", action="store_true", help="for programs")
    claims = suites.add_parser("claims", help="what is said of paging and continuous batching, measured here")
    claims.add_argument("--only", default="", metavar="NAMES", help="some of the rows, separated by commas")
    claims.add_argument("--list", dest="listed", action="store_true", help="say which rows there are")
    claims.add_argument("--json", dest="as_json", action="store_true", help="list them for programs")
    _model_option(claims)
    claims.add_argument("--repeat", type=int, default=2, help="runs of each (default %(default)s)")
    claims.add_argument("--threads", type=int, help="CPU threads of each system (default: one a core)")
    claims.add_argument("--seed", type=int, default=0, help="of the loads (default %(default)s)")
    claims.add_argument(
        "--resume", action="store_true", help="keep the rows that are in the output already, and measure the others"
    )
    claims.add_argument("--output", default="bench-claims.json", help="where results go (default %(default)s)")
    opened = suites.add_parser("open", help="show a file of results in the app")
    opened.add_argument("file", metavar="FILE", help="as `pagedeck bench` and `pagedeck tune` write it (*.json)")
    report = suites.add_parser("report", help="the page with pictures of a file of results")
    report.add_argument("file", metavar="FILE")
    report.add_argument("--output", help="(default: beside it, .html)")
    summary = suites.add_parser("summary", help="what a file of results says, as JSON for a program that shows it")
    summary.add_argument("file", metavar="FILE")
