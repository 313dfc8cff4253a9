"""Where the pocket model's answers come from."""

from duologue_llm.answers.question import Answerer, Answering, Needs, Part, Question, Whole

__all__ = ["Answerer", "Answering", "Needs", "Part", "Question", "Whole"]
