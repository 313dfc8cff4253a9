"""The pocket model through the OpenAI SDK, against `make demo`.  Run it in the checkout, with `openai[realtime]` 3.57."""

import asyncio
import base64
import wave

from openai import AsyncOpenAI


async def main() -> None:
    client = AsyncOpenAI(base_url="http://127.0.0.1:8700/v1", api_key="none needed here")
    with wave.open("examples/hello.wav") as recording:  # 24 kHz, mono, 16 bit
        heard = recording.readframes(recording.getnframes())
    async with client.live.connect() as session:
        await session.send({"type": "session.start", "session": {"model": "pocket"}})

        async def speak() -> None:
            # 8 s: the recording, then silence, in which the answer comes.
            for at in range(0, 80 * 4800, 4800):
                chunk = heard[at : at + 4800].ljust(4800, b"\0")
                audio = base64.b64encode(chunk).decode()
                await session.send({"type": "session.input_audio.append", "audio": audio})
                await asyncio.sleep(0.1)
            await session.send({"type": "session.close"})

        speaking = asyncio.create_task(speak())
        async for event in session:
            if event.type == "session.output_transcript.delta":
                print(event.delta, end="", flush=True)
        await speaking


asyncio.run(main())
