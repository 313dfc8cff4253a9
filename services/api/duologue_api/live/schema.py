"""The shape of `session` in `session.start`, field by field (`SessionConfigParam` of openai-python 3.57).

Only shapes are checked here.  What this server makes of them is in `config`.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag

MAX_INPUT_MESSAGES = 128

T = TypeVar("T")


class _Once(FailFast):
    __hash__ = object.__hash__  # members of a union are hashed


Many = Annotated[list[T], _Once()]
"""A list that is given up at its first bad item, so that a hostile one costs little."""


def _by(field: str) -> Discriminator:
    """Tells the members of a union by the string in `field`.  Tags stand in angle brackets, so that they can be
    told from field names in the place of an error."""

    def tag(value: Any) -> str | None:
        known = value.get(field) if isinstance(value, dict) else None
        return f"<{known}>" if isinstance(known, str) else None

    return Discriminator(tag)


def _by_kind(value: Any) -> str:
    return "<text>" if isinstance(value, str) else "<other>"


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Pcm(Shape):
    type: Literal["audio/pcm"]
    rate: Literal[16000, 24000]


class Pcmu(Shape):
    type: Literal["audio/pcmu"]
    rate: Literal[8000]


class Pcma(Shape):
    type: Literal["audio/pcma"]
    rate: Literal[8000]


AnyFormat = Annotated[
    Annotated[Pcm, Tag("<audio/pcm>")]
    | Annotated[Pcmu, Tag("<audio/pcmu>")]
    | Annotated[Pcma, Tag("<audio/pcma>")],
    _by("type"),
]


class CustomVoice(Shape):
    id: str


class Output(Shape):
    voice: (
        Annotated[
            Annotated[str, Tag("<text>")] | Annotated[CustomVoice, Tag("<other>")], Discriminator(_by_kind)
        ]
        | None
    ) = None


class AudioShape(Shape):
    format: AnyFormat = Pcm(type="audio/pcm", rate=24000)
    output: Output = Output()


# ---------------------------------------------------------------- history


class InputText(Shape):
    text: str
    type: Literal["input_text"] = "input_text"


class OutputText(Shape):
    text: str
    type: Literal["text", "output_text"] = "text"


class Message(Shape):
    id: str | None = None
    status: Literal["incomplete", "completed"] | None = None
    type: Literal["message"] = "message"


class Heard(Message):
    role: Literal["developer", "user"]
    content: Annotated[list[InputText], Field(min_length=1, max_length=1)]


class Spoken(Message):
    role: Literal["assistant"]
    content: Annotated[list[OutputText], Field(min_length=1, max_length=1)]


Item = Annotated[
    Annotated[Heard, Tag("<developer>")]
    | Annotated[Heard, Tag("<user>")]
    | Annotated[Spoken, Tag("<assistant>")],
    _by("role"),
]

# ---------------------------------------------------------------- decisions


class DecisionImage(Shape):
    type: Literal["input_image"]
    image_url: str
    detail: Literal["low", "high", "auto", "original"] | None = None


class DecisionJson(Shape):
    type: Literal["input_json"]
    data: dict[str, Any] | Many[dict[str, Any]]


class DecisionText(Shape):
    type: Literal["input_text"]
    text: str


DecisionPart = Annotated[
    Annotated[DecisionText, Tag("<input_text>")]
    | Annotated[DecisionImage, Tag("<input_image>")]
    | Annotated[DecisionJson, Tag("<input_json>")],
    _by("type"),
]


class Question(Shape):
    name: str = ""
    instructions: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[Many[DecisionPart], Tag("<other>")],
        Discriminator(_by_kind),
    ]


class Option(Shape):
    value: str | bool
    description: str = ""


class Choice(Question):
    type: Literal["choice"]
    choices: Many[Option]


class Predicate(Question):
    type: Literal["predicate"]


class Level(Shape):
    label: str
    description: str = ""


class Score(Question):
    type: Literal["score"]
    levels: Many[Level]


AnyQuestion = Annotated[
    Annotated[Choice, Tag("<choice>")]
    | Annotated[Predicate, Tag("<predicate>")]
    | Annotated[Score, Tag("<score>")],
    _by("type"),
]


class Questions(Shape):
    questions: Many[AnyQuestion]


class DecisionsConfig(Questions):
    model: str


class Trigger(Shape):
    type: Literal["decisions"]
    event_type: Literal["session.input_transcript.delta", "session.output_transcript.delta"]
    decisions: Questions


# ---------------------------------------------------------------- delegation


class Function(Shape):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Hosted(Shape):
    """A tool of the backend's own: its settings are the backend's business."""

    model_config = ConfigDict(extra="allow")
    type: Literal[
        "web_search",
        "file_search",
        "code_interpreter",
        "shell",
        "image_generation",
        "mcp",
        "custom",
        "namespace",
        "tool_search",
        "programmatic_tool_calling",
        "computer",
        "apply_patch",
    ]


def _by_tool(value: Any) -> str | None:
    if not isinstance(value, dict) or "type" not in value:
        return None
    return "<function>" if value["type"] == "function" else "<hosted>"


AnyTool = Annotated[
    Annotated[Function, Tag("<function>")] | Annotated[Hosted, Tag("<hosted>")], Discriminator(_by_tool)
]


class ToolChoice(Shape):
    model_config = ConfigDict(extra="allow")
    type: str


class Reasoning(Shape):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["concise", "detailed", "auto"] | None = None


class Text(Shape):
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponsesConfig(Shape):
    model: str
    instructions: str | None = None
    tools: Many[AnyTool] = []
    tool_choice: Annotated[
        Annotated[Literal["auto", "none", "required"], Tag("<text>")] | Annotated[ToolChoice, Tag("<other>")],
        Discriminator(_by_kind),
    ] = "auto"
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=16)] | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    service_tier: (
        Literal["auto", "default", "fast_tier_temp_pilot", "flex", "priority", "ultrafast"] | None
    ) = None


class Delegation(Shape):
    acknowledgement_delay_ms: Annotated[int, Field(ge=0)] = 0


class ToClient(Delegation):
    type: Literal["client"]


class ToResponses(Delegation):
    type: Literal["responses"]
    responses: ResponsesConfig


class ToDecisions(Delegation):
    type: Literal["decisions"]
    decisions: DecisionsConfig


AnyDelegation = Annotated[
    Annotated[ToClient, Tag("<client>")]
    | Annotated[ToResponses, Tag("<responses>")]
    | Annotated[ToDecisions, Tag("<decisions>")],
    _by("type"),
]

# ---------------------------------------------------------------- frontends


class EventSelector(Shape):
    type: str
    response_event: str = ""


class DataChannel(Shape):
    allowed_client_events: Annotated[
        Annotated[Literal["all"], Tag("<text>")] | Annotated[Many[str], Tag("<other>")],
        Discriminator(_by_kind),
    ] = "all"
    allowed_server_events: Annotated[
        Annotated[Literal["all"], Tag("<text>")] | Annotated[Many[EventSelector], Tag("<other>")],
        Discriminator(_by_kind),
    ] = "all"


class ClientShape(Shape):
    data_channel: DataChannel


class UpdateShape(Shape):
    """What of `session` can change, when it has changed."""

    delegation: AnyDelegation
    triggers: Many[Trigger]


class SessionShape(Shape):
    """All of `session`.  What has a default may be left out; only `| None` may be null."""

    model: str
    instructions: str | None = None
    audio: AudioShape = AudioShape()
    delegation: AnyDelegation | None = None
    input: Annotated[list[Item], _Once(), Field(max_length=MAX_INPUT_MESSAGES)] = []
    store: bool = False
    triggers: Many[Trigger] = []
    safety_identifier: str | None = None
    client: ClientShape | None = None
