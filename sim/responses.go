package sim

import "strconv"

// response appends the object of the Responses API, begun or done.
// https://platform.openai.com/docs/api-reference/responses/object
func (o openai) response(b []byte, c *call, done bool) []byte {
	b = append(b, `{"id":"resp_`...)
	b = append(b, c.id...)
	b = append(b, `","object":"response","created_at":`...)
	b = appendInt(b, int(c.admitted.Unix()))
	b = append(b, `,"status":"`...)
	b = append(b, responseStatus(c, done)...)
	b = append(b, `","error":null,"incomplete_details":`...)
	if done && c.cut {
		b = append(b, `{"reason":"max_output_tokens"}`...)
	} else {
		b = append(b, `null`...)
	}
	b = append(b, `,"instructions":null,"max_output_tokens":`...)
	if c.maxTokens > 0 {
		b = appendInt(b, c.maxTokens)
	} else {
		b = append(b, `null`...)
	}
	b = append(b, `,"model":`...)
	b = appendString(b, c.model)
	b = append(b, `,"output":[`...)
	if done {
		b = o.outputItem(b, c, true)
	}
	b = append(b, `],"parallel_tool_calls":true,"previous_response_id":null,"tool_choice":"auto","tools":[],"usage":`...)
	if !done {
		return append(b, `null,"metadata":{}}`...)
	}
	b = append(b, `{"input_tokens":`...)
	b = appendInt(b, c.input)
	b = append(b, `,"input_tokens_details":{"cached_tokens":0},"output_tokens":`...)
	b = appendInt(b, c.plan.output)
	b = append(b, `,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":`...)
	b = appendInt(b, c.input+c.plan.output)
	return append(b, `},"metadata":{}}`...)
}

func responseStatus(c *call, done bool) string {
	switch {
	case !done:
		return "in_progress"
	case c.cut:
		return "incomplete"
	default:
		return "completed"
	}
}

// outputItem is the one message of a response, empty or with its text.
func (o openai) outputItem(b []byte, c *call, done bool) []byte {
	if c.tool != "" {
		return o.toolItem(b, c, done)
	}
	b = append(b, `{"id":"msg_`...)
	b = append(b, c.id...)
	b = append(b, `","type":"message","status":"`...)
	b = append(b, responseStatus(c, done)...)
	b = append(b, `","role":"assistant","content":[`...)
	if done {
		b = o.outputText(b, c, true)
	}
	return append(b, `]}`...)
}

func (openai) outputText(b []byte, c *call, done bool) []byte {
	b = append(b, `{"type":"output_text","annotations":[],"text":"`...)
	if done {
		b = c.appendText(b, 0, c.perChoice)
	}
	return append(b, `"}`...)
}

// responseEvent appends the head of a typed event up to and with its sequence
// number; members follow.
// https://platform.openai.com/docs/api-reference/responses-streaming
func responseEvent(b []byte, c *call, kind string) []byte {
	b = append(b, "event: "...)
	b = append(b, kind...)
	b = append(b, "\ndata: {\"type\":\""...)
	b = append(b, kind...)
	b = append(b, `","sequence_number":`...)
	b = strconv.AppendInt(b, int64(c.sequence), 10)
	c.sequence++
	return b
}

const endOfEvent = "}\n\n"

// inItem appends where in the response an event belongs.
func inItem(b []byte, c *call) []byte {
	b = append(b, `,"item_id":"msg_`...)
	b = append(b, c.id...)
	return append(b, `","output_index":0,"content_index":0`...)
}

func (o openai) openResponse(b []byte, c *call) []byte {
	for _, kind := range []string{"response.created", "response.in_progress"} {
		b = responseEvent(b, c, kind)
		b = append(b, `,"response":`...)
		b = o.response(b, c, false)
		b = append(b, endOfEvent...)
	}
	b = responseEvent(b, c, "response.output_item.added")
	b = append(b, `,"output_index":0,"item":`...)
	b = o.outputItem(b, c, false)
	b = append(b, endOfEvent...)
	if c.tool != "" {
		return toolDelta(b, c, argumentsBegin)
	}
	b = responseEvent(b, c, "response.content_part.added")
	b = inItem(b, c)
	b = append(b, `,"part":`...)
	b = o.outputText(b, c, false)
	return append(b, endOfEvent...)
}

func (openai) deltaResponse(b []byte, c *call, text []byte) []byte {
	if c.tool != "" {
		return toolDelta(b, c, string(text))
	}
	b = responseEvent(b, c, "response.output_text.delta")
	b = inItem(b, c)
	b = append(b, `,"delta":"`...)
	b = append(b, text...)
	return append(b, `"`+endOfEvent...)
}

func (o openai) closeResponse(b []byte, c *call) []byte {
	if c.tool != "" {
		b = toolDelta(b, c, argumentsEnd)
		b = toolEvent(b, c, "done", "arguments")
		b = c.arguments(b)
		b = append(b, endOfEvent...)
	} else {
		b = o.closeText(b, c)
	}
	b = responseEvent(b, c, "response.output_item.done")
	b = append(b, `,"output_index":0,"item":`...)
	b = o.outputItem(b, c, true)
	b = append(b, endOfEvent...)
	b = responseEvent(b, c, "response."+responseStatus(c, true))
	b = append(b, `,"response":`...)
	b = o.response(b, c, true)
	return append(b, endOfEvent...)
}

// closeText ends the one part of a response's message.
func (o openai) closeText(b []byte, c *call) []byte {
	b = responseEvent(b, c, "response.output_text.done")
	b = inItem(b, c)
	b = append(b, `,"text":"`...)
	b = c.appendText(b, 0, c.perChoice)
	b = append(b, `"`+endOfEvent...)
	b = responseEvent(b, c, "response.content_part.done")
	b = inItem(b, c)
	b = append(b, `,"part":`...)
	b = o.outputText(b, c, true)
	return append(b, endOfEvent...)
}
