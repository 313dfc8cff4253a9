"""Where the pocket model's answers come from."""

from duologue_llm.answers.question import Answerer, Answering, Part, Question, Whole

__all__ = ["Answerer", "Answering", "Part", "Question", "Whole"]
