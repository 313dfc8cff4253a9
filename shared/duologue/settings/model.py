"""Every setting of every command, said once: the command line, `DUO_…`, settings files and docs/settings.md have their
names, types, defaults and descriptions from here."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PrivateAttr
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from duologue.settings.file import read
from duologue.settings.use import EVERY, Use

PORT = 8700
NATS_URL = "nats://127.0.0.1:4222"

Words = Annotated[
    list[str], BeforeValidator(lambda given: given.split() if isinstance(given, str) else given)
]
"""Several values; in the environment separated by spaces."""


class Settings(BaseSettings):
    """What was given counts in this order: flags (the keywords), `DUO_…` variables, the settings file, defaults.
    `load` also says in one line what is wrong; see there."""

    model_config = SettingsConfigDict(
        env_prefix="DUO_",
        env_prefix_target="all",
        allow_inf_nan=False,
        env_ignore_empty=True,
        enable_decoding=False,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    # ------------------------------------------------------------ every command

    config: Annotated[Path | None, Use(EVERY, metavar="FILE")] = None
    """Settings file (TOML, flat: `port = 8700`)."""
    debug: Annotated[bool, Use(EVERY)] = False
    """Show tracebacks and log more."""
    log_level: Annotated[
        str | None, Use(EVERY, otherwise={EVERY: "warning", "api": "info", "worker": "info"})
    ] = None
    """debug, info, warning or error."""
    log_format: Annotated[str, Use(EVERY)] = "auto"
    """text, json, or auto: text on a terminal."""

    # ------------------------------------------------------------ what is served, and where

    stage: Annotated[str | None, Use("worker", flag="STAGE", required="worker")] = None
    """encoder, llm, talker or codec."""
    model: Annotated[
        str | None,
        Use(
            "worker talk offline doctor tap",
            required="worker offline",
            otherwise={
                "talk": "the first that the server offers",
                "doctor": "all",
                "tap": "as each session's start tells",
            },
        ),
    ] = None
    """Id of the model."""
    models: Annotated[
        Words,
        Use(
            "api up",
            flag="--model",
            otherwise={"api": "that of `model`, or all there are", "up": "that of `model`, or pocket"},
        ),
    ] = []
    """Serve this model; repeatable."""
    option: Annotated[Words, Use("api worker up doctor drill", metavar="K=V")] = []
    """Option of the model; repeatable."""
    seed: Annotated[int | None, Use("api up offline drill", otherwise="from the session's id")] = None
    """Seed of every session."""
    host: Annotated[str, Use("api")] = "127.0.0.1"
    """Interface to listen on."""
    port: Annotated[int, Field(ge=0, le=65535), Use("api up")] = PORT
    """Port of the (first) API pod; 0: any."""
    nats: Annotated[
        str | None,
        Use(
            "api worker up doctor top tap sessions drill",
            metavar="URL",
            otherwise={
                EVERY: NATS_URL,
                "up": "a server of its own",
                "drill": "of its own deployment; at `url`, moves are not counted",
            },
        ),
    ] = None
    """Address of the NATS server."""
    browser: Annotated[bool, Use("up")] = True
    """Open the talk page in the browser, on a desktop."""
    announce: Annotated[bool, Use("api worker tap")] = True
    """Print one line of JSON on standard output when ready."""

    # ------------------------------------------------------------ what a model's workers need; `<model>_<option>`

    pocket_chat_url: Annotated[str | None, Use("worker", metavar="URL", otherwise="`pocket_llm`")] = None
    """Base address of an OpenAI-compatible chat endpoint that answers for `pocket`, as `http://127.0.0.1:11434/v1`."""
    pocket_chat_model: Annotated[str | None, Use("worker", otherwise="the first that it offers")] = None
    """The endpoint's model."""
    pocket_chat_key: Annotated[
        str | None, Field(repr=False), Use("worker", metavar="KEY", secret=True, otherwise="none")
    ] = None
    """Bearer key for the endpoint."""
    pocket_llm: Annotated[
        str | None, Use("worker", metavar="FILE|auto|none", otherwise="auto: SmolLM2 where it is installed")
    ] = None
    """What answers for `pocket` without an endpoint: a GGUF file, or rules (none)."""

    # ------------------------------------------------------------ who may

    key: Annotated[Words, Field(repr=False), Use("api up talk drill", metavar="KEY", secret=True)] = []
    """Bearer key: to accept, repeatable; of `talk` and `drill`, to show to the server."""
    keys_file: Annotated[Path | None, Use("api up", metavar="FILE")] = None
    """File of accepted bearer keys, one a line."""
    no_auth: Annotated[bool, Use("api")] = False
    """Serve anybody on this machine without a key."""

    # ------------------------------------------------------------ how many sessions

    places: Annotated[int, Field(ge=1), Use("worker doctor")] = 64
    """Sessions at a time in a worker, at most."""
    memory_bytes: Annotated[
        int | None, Field(ge=1), Use("worker", otherwise="nine tenths of what is free at the start")
    ] = None
    """Memory that a worker's stage and its sessions may take in all."""
    utilisation: Annotated[float, Field(ge=0.01, le=100), Use("worker")] = 0.85
    """Share of a unit that a step of all of a worker's sessions may take."""
    deadline_units: Annotated[float, Field(ge=0.1, le=100), Use("api")] = 1.0
    """A session starts only where answers are expected within so many units."""
    takeover_reserve: Annotated[
        Annotated[int, Field(ge=0)] | Literal["auto"], Use("api up", metavar="N|auto")
    ] = "auto"
    """Places of each stage kept free for sessions of a worker that dies; auto: the largest worker's share."""

    # ------------------------------------------------------------ times and bounds of a session

    start_timeout_s: Annotated[float, Field(ge=1), Use("api")] = 60.0
    """How long a client may wait with `session.start`."""
    lifetime_s: Annotated[float, Field(ge=1), Use("api")] = 3600.0
    """A session ends after so long."""
    input_backlog_s: Annotated[float, Field(ge=0.1), Use("api")] = 5.0
    """Input audio that may wait to be processed."""
    input_backlog_policy: Annotated[Literal["drop_oldest", "close"], Use("api")] = "drop_oldest"
    """What happens to input beyond that: the oldest is dropped, or the session closed."""
    output_backlog_s: Annotated[float, Field(ge=0.1), Use("api")] = 5.0
    """Output audio held for a slow reader before the oldest is dropped."""
    output_backlog_close_s: Annotated[float, Field(ge=0), Use("api")] = 30.0
    """A reader that has not caught up so long after the first drop is closed."""
    drain_s: Annotated[float, Field(ge=0), Use("api worker")] = 10.0
    """After SIGTERM, time for the sessions to end."""
    gather_ms: Annotated[
        float | None,
        Field(ge=0),
        Use("api worker", otherwise={"api": "a quarter unit", "worker": "a fortieth"}),
    ] = None
    """Wait of a bundle, or of a worker's step, for more sessions' units."""
    ring_bytes: Annotated[int, Field(ge=1 << 16), Use("worker")] = 16 << 20
    """Memory of the units that one edge of a session keeps for repair, at most."""
    ledger_bytes: Annotated[int, Field(ge=1 << 20), Use("api")] = 64 << 20
    """Memory of a session's input that is kept so that lost stages can be made again, at most."""

    # ------------------------------------------------------------ what the store keeps

    keep_ledger: Annotated[bool, Use("api up")] = False
    """Record every session, both directions, not only those whose client asks for it (`store`)."""
    ledger_age_s: Annotated[float, Field(ge=60), Use("api")] = 3600.0
    """Age at which the store drops what is left of a session that was not recorded."""
    ledger_mib: Annotated[int, Field(ge=1), Use("api")] = 1024
    """Most of the store for live sessions' ledgers, and as much for their audio."""
    store_age_s: Annotated[float, Field(ge=60), Use("api")] = 30 * 86_400.0
    """The store drops recordings after so long."""
    store_mib: Annotated[int, Field(ge=1), Use("api")] = 4096
    """Most of the store for recordings."""

    # ------------------------------------------------------------ what can be seen

    metrics_port: Annotated[int | None, Field(ge=0, le=65535), Use("worker", otherwise="no metrics")] = None
    """Serve metrics here; 0: any port."""
    metrics_host: Annotated[str, Use("worker")] = "127.0.0.1"
    """Interface of the metrics."""
    otlp_endpoint: Annotated[str, Use("api worker", metavar="URL", otherwise="no traces")] = ""
    """Send traces to this OTLP collector."""
    trace_ratio: Annotated[float, Field(ge=0, le=1), Use("api worker")] = 0.01
    """Share of the units that are traced; of late ones, up to 10 a second and pod are as well."""
    tap: Annotated[Path | None, Use("up", metavar="DIR")] = None
    """Write every stage boundary of every session here when it is over."""
    tap_mib: Annotated[int, Field(ge=1), Use("up tap")] = 512
    """Memory for sessions that are to be written; beyond it their later units are not kept."""

    # ------------------------------------------------------------ everything on one machine

    workers: Annotated[
        str, Use("up sessions drill", metavar="STAGE=N,…", otherwise={"drill": "two of each"})
    ] = "encoder=1,llm=1,talker=1,codec=1"
    """Workers of each stage, for each model."""
    api_pods: Annotated[int, Field(ge=1, le=100), Use("up drill")] = 1
    """API processes."""
    data_dir: Annotated[Path | None, Use("up", otherwise="a temporary directory")] = None
    """Keep the embedded NATS server's data here."""
    up_timeout_s: Annotated[float, Field(ge=1), Use("up", flag="--start-timeout-s")] = 120.0
    """All must be ready within this."""

    # ------------------------------------------------------------ one run of a tool

    file: Annotated[Path | None, Use("talk", flag="FILE.wav", otherwise="`mic`")] = None
    """The recording, a WAV file."""
    mic: Annotated[bool, Use("talk")] = False
    """Talk through this machine's microphone and loudspeaker (extra `mic`)."""
    url: Annotated[
        str, Use("talk drill", metavar="URL", otherwise={"drill": "a deployment is started for it"})
    ] = f"ws://127.0.0.1:{PORT}"
    """The server."""
    input: Annotated[Path | None, Use("offline", metavar="FILE", required="offline")] = None
    """A WAV file, or an archive with the array `pcm16`."""
    options: Annotated[Path | None, Use("offline", metavar="FILE.json")] = None
    """Session options, a JSON object."""
    out: Annotated[
        Path | None,
        Use(
            "talk offline sessions",
            metavar="FILE",
            required="offline",
            otherwise={"talk": "nowhere", "sessions": "SID.npz"},
        ),
    ] = None
    """Write here: a WAV file; of `offline` and `sessions`, the arrays, with the records beside them as .json."""
    instructions: Annotated[str | None, Use("talk")] = None
    """Instructions for the model."""
    voice: Annotated[str | None, Use("talk")] = None
    """Voice of the model."""
    format: Annotated[
        Literal["pcm24k", "pcm16k", "pcmu", "pcma"] | None, Use("talk", otherwise="`pcm24k`")
    ] = None
    """Audio of the session."""
    rate: Annotated[int | None, Use("talk", otherwise="that of `format`")] = None
    """Sample rate of a session of PCM: 24000 or 16000."""
    chunk_ms: Annotated[float, Field(ge=0.1), Use("talk")] = 20.0
    """Audio of an append."""
    chunk_bytes: Annotated[int | None, Field(ge=1), Use("talk", otherwise="`chunk_ms`")] = None
    """The same in bytes of whole samples."""
    tail_s: Annotated[float, Field(ge=0, le=3600), Use("talk", flag="--tail")] = 0.0
    """Seconds of silence after the recording."""
    pace: Annotated[float, Use("talk")] = 1.0
    """Multiple of real time."""
    no_pace: Annotated[bool, Use("talk")] = False
    """As fast as the answers come."""
    subject: Annotated[str | None, Use("tap", flag="SUBJECT", otherwise="all")] = None
    """Only messages to these subjects, * and > as in NATS."""
    kind: Annotated[Words, Use("tap", otherwise="all")] = []
    """Only messages of this kind (in, ack, claim, ctl, hb, ev); repeatable."""
    session: Annotated[str | None, Use("tap", metavar="SID", otherwise="all")] = None
    """Only what concerns this session."""
    count: Annotated[int | None, Field(ge=1), Use("tap", otherwise="no end")] = None
    """End after so many messages."""
    whole: Annotated[bool, Use("tap", flag="--bytes")] = False
    """Show all bytes of arrays too, in base64."""
    write: Annotated[Path | None, Use("tap", metavar="DIR")] = None
    """Print no message; write every stage boundary of every session here when it is over."""
    action: Annotated[
        Literal["ls", "show", "export", "replay"] | None,
        Use("sessions", flag="ls|show|export|replay", required="sessions"),
    ] = None
    """List the sessions, show one, write one to a file, or run one again."""
    sid: Annotated[str | None, Use("sessions", flag="SID", otherwise="all, for ls")] = None
    """Id of a session; for replay also the file that an export wrote."""
    alongside: Annotated[int, Field(ge=0, le=1000), Use("sessions")] = 2
    """Replay it in so many more sessions at the same time, which change what is stepped together."""
    once: Annotated[bool, Use("top")] = False
    """Show it once, after a second, and end."""
    bench: Annotated[str | None, Use("bench", flag="NAME|all", required="bench")] = None
    """A benchmark's name, or all."""
    rounds: Annotated[int | None, Field(ge=1), Use("bench drill", otherwise={"bench": "5", "drill": "1"})] = (
        None
    )
    """Rounds of each benchmark; how often a drill goes through its faults."""
    fault: Annotated[
        Words, Use("drill", metavar="FAULT", otherwise="a kill of each stage, and of all at once")
    ] = []
    """What is done to the deployment, such as kill:llm or nats:restart; repeatable, in this order."""
    sessions: Annotated[int, Field(ge=1), Use("drill")] = 12
    """Callers at a time, each at real time."""
    every_s: Annotated[float, Field(ge=0.5), Use("drill", flag="--every")] = 4.0
    """Seconds from the end of a fault to the next one, at least."""
    as_json: Annotated[bool, Field(alias="json"), Use("up talk bench doctor top tap sessions drill")] = False
    """Print JSON on standard output, and nothing else."""
    show_settings: Annotated[bool, Use("doctor", flag="--settings")] = False
    """Print all settings and where each value comes from."""

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path = init_settings().get("config") or env_settings().get("config")
        given = read(Path(path)) if path else {}
        return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=given)

    @property
    def origins(self) -> dict[str, str]:
        """Where each value comes from that is not the default, by the setting's key: `--port`, `DUO_PORT`, or the
        name of the file.  Known after `load`."""
        return self._origins
