// The models that the server offers: `GET v1/models`.

import {UNREACHABLE, ofStatus} from "./problems.js";

// Rejects with {problem}.
export async function models(base, key) {
  let answer, body;
  try {
    answer = await fetch(new URL("v1/models", base), {
      headers: key ? {Authorization: `Bearer ${key}`} : {}, cache: "no-store",
    });
    body = await answer.json();
  } catch {
    throw {problem: UNREACHABLE};
  }
  if (!answer.ok) throw {problem: ofStatus(answer.status, body.error?.message, Boolean(key))};
  return body.data.map(({id, duologue = {}}) => ({
    id,
    description: duologue.description ?? "",
    ready: duologue.ready ?? true,
    voices: duologue.voices ?? [],
    outputRate: duologue.output_rate ?? null,
    unitS: duologue.unit_s ?? null,
  }));
}
