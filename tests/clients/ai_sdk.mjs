// Asks a server by Vercel's AI SDK: node ai_sdk.mjs URL. Prints what it was told, as JSON.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const provider = createOpenAICompatible({
  name: "headrace", baseURL: process.argv[2], apiKey: "sesame", includeUsage: true,
  supportsStructuredOutputs: true,
});
const asked = {
  model: provider("tiny"), prompt: "What is 12 + 7?", temperature: 0, maxOutputTokens: 200,
  maxRetries: 0,
};
const digit = z.number().int().min(0).max(9);
const said = {};

const answer = await generateText(asked);
said.text = answer.text;
said.finishReason = answer.finishReason;
said.usage = answer.usage;

const stream = streamText(asked);
said.streamed = "";
for await (const piece of stream.textStream) said.streamed += piece;
said.streamUsage = await stream.usage;

const add = tool({
  description: "adds", inputSchema: z.object({ a: digit }), execute: async ({ a }) => a + 1,
});
const steps = {
  ...asked, tools: { add }, toolChoice: { type: "tool", toolName: "add" }, stopWhen: isStepCount(2),
  prepareStep: ({ stepNumber }) => (stepNumber ? { toolChoice: "none" } : {}),
};
async function told(result) {
  const [first, second] = await result.steps;
  const [call] = first.toolCalls;
  const [back] = first.toolResults;
  return { name: call.toolName, input: call.input, output: back.output, after: second.text };
}
said.called = await told(await generateText(steps));
const running = streamText(steps);
await running.consumeStream();
said.calledInStream = await told(running);

// Of a record zod writes propertyNames, and the provider asks for a strict schema.
const schema = z.object({
  a: digit, kinds: z.record(z.enum(["b"]), digit), none: z.array(z.record(z.string(), digit)).max(0),
});
said.object = (await generateText({ ...asked, output: Output.object({ schema }) })).output;
const partial = streamText({ ...asked, output: Output.object({ schema }) });
for await (const one of partial.partialOutputStream) said.streamedObject = one;

said.errors = {};
for (const [name, other] of Object.entries({
  missing: { model: provider("other") },
  wrong: { temperature: -1 },
})) {
  try {
    await generateText({ ...asked, ...other });
  } catch (error) {
    said.errors[name] = [error.name, error.statusCode, error.data.error.param];
  }
}
console.log(JSON.stringify(said));
