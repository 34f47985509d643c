// Asks a server by the openai package: node openai.mjs URL. Prints what it was told, as JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "sesame", maxRetries: 0 });
const messages = [{ role: "user", content: "What is 12 + 7?" }];
const asked = { model: "tiny", messages, temperature: 0, max_tokens: 200 };
const digit = { type: "integer", minimum: 0, maximum: 9 };
const parameters = {
  type: "object", properties: { a: digit }, required: ["a"], additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "add", parameters } }];
const said = {};

const answer = await client.chat.completions.create(asked);
said.text = answer.choices[0].message.content;
said.usage = answer.usage;

said.streamed = "";
for await (const piece of await client.chat.completions.create({ ...asked, stream: true })) {
  said.streamed += piece.choices[0].delta.content ?? "";
}

const forced = { ...asked, tools, tool_choice: "required" };
const called = await client.chat.completions.create(forced);
said.called = called.choices[0].message.tool_calls[0].function;
const runner = client.chat.completions.stream(forced);
said.calledInStream = (await runner.finalChatCompletion()).choices[0].message.tool_calls[0].function;

const form = { type: "json_schema", json_schema: { name: "sum", schema: parameters, strict: true } };
const parsed = await client.chat.completions.parse({ ...asked, response_format: form });
said.parsed = parsed.choices[0].message.content;

const response = await client.responses.create({ model: "tiny", input: messages, temperature: 0 });
said.response = response.output_text;
said.models = (await client.models.list()).data.map((model) => model.id);

said.errors = {};
for (const [name, body] of Object.entries({
  missing: { ...asked, model: "other" },
  wrong: { ...asked, temperature: -1 },
})) {
  try {
    await client.chat.completions.create(body);
  } catch (error) {
    said.errors[name] = [error.constructor.name, error.status, error.code, error.param];
  }
}

const stopped = await client.chat.completions.create({
  ...asked, max_tokens: 900, ignore_eos: true, stream: true,
});
said.pieces = 0;
for await (const _ of stopped) {
  said.pieces += 1;
  if (said.pieces === 3) break; // closes the connection
}
console.log(JSON.stringify(said));
