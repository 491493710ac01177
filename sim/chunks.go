package sim

// open begins a stream. A chat completion begins with the role of each choice.
// https://platform.openai.com/docs/api-reference/chat-streaming
func (o openai) open(b []byte, c *call) []byte {
	if c.endpoint == responses {
		return o.openResponse(b, c)
	}
	for i := range c.choices {
		if c.tool != "" {
			b = o.openTool(b, c, i)
			continue
		}
		b = o.chunk(b, c, i, `{"role":"assistant","content":"","refusal":null}`, `null`)
	}
	return b
}

func (o openai) delta(b []byte, c *call, choice int, text []byte) []byte {
	if c.endpoint == responses {
		return o.deltaResponse(b, c, text)
	}
	if c.tool != "" {
		return o.toolChunk(b, c, choice, string(text))
	}
	return o.chunk(b, c, choice, `{"content":"`+string(text)+`"}`, `null`)
}

func (o openai) close(b []byte, c *call) []byte {
	if c.endpoint == responses {
		return o.closeResponse(b, c)
	}
	for i := range c.choices {
		if c.tool != "" {
			b = o.toolChunk(b, c, i, argumentsEnd)
		}
		b = o.chunk(b, c, i, `{}`, `"`+o.finish(c)+`"`)
	}
	if c.includeUsage {
		b = append(b, "data: "...)
		b = o.head(b, c, "chat.completion.chunk")
		b = append(b, `,"service_tier":"default","system_fingerprint":null,"choices":[],"usage":`...)
		b = o.usage(b, c)
		b = append(b, endOfEvent...)
	}
	return append(b, "data: [DONE]\n\n"...)
}

func (o openai) chunk(b []byte, c *call, choice int, delta, finish string) []byte {
	b = append(b, "data: "...)
	b = o.head(b, c, "chat.completion.chunk")
	b = append(b, `,"service_tier":"default","system_fingerprint":null,"choices":[{"index":`...)
	b = appendInt(b, choice)
	b = append(b, `,"delta":`...)
	b = append(b, delta...)
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	b = append(b, finish...)
	b = append(b, `}]`...)
	if c.includeUsage {
		b = append(b, `,"usage":null`...)
	}
	return append(b, endOfEvent...)
}
