package sim

import "strconv"

// response is the object of the Responses API, begun or done.
// https://platform.openai.com/docs/api-reference/responses/object
func (o openai) response(c *call, done bool) string {
	reason, most, output, usage := `null`, `null`, "", `null`
	if c.maxTokens > 0 {
		most = strconv.Itoa(c.maxTokens)
	}
	if done && c.cut {
		reason = `{"reason":"max_output_tokens"}`
	}
	if done {
		output = o.outputItem(c, true)
		usage = `{"input_tokens":` + strconv.Itoa(c.input) + `,"input_tokens_details":{"cached_tokens":0},"output_tokens":` + strconv.Itoa(c.plan.output) +
			`,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":` + strconv.Itoa(c.input+c.plan.output) + `}`
	}
	return `{"id":"resp_` + c.id + `","object":"response","created_at":` + strconv.FormatInt(c.admitted.Unix(), 10) +
		`,"status":"` + responseStatus(c, done) + `","error":null,"incomplete_details":` + reason + `,"instructions":null,"max_output_tokens":` + most +
		`,"model":` + quote(c.model) + `,"output":[` + output + `],"parallel_tool_calls":true,"previous_response_id":null,"tool_choice":"auto","tools":[],` +
		`"usage":` + usage + `,"metadata":{}}`
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

// outputItem is the one message of a response, or its call of a tool, empty or with its text.
// https://platform.openai.com/docs/guides/function-calling?api-mode=responses
func (o openai) outputItem(c *call, done bool) string {
	content, arguments := "", `""`
	if done {
		content, arguments = o.outputText(c, true), c.arguments()
	}
	if c.tool != "" {
		return `{"id":"fc_` + c.id + `","type":"function_call","status":"` + responseStatus(c, done) + `","call_id":"call_` + c.id +
			`","name":` + quote(c.tool) + `,"arguments":` + arguments + `}`
	}
	return `{"id":"msg_` + c.id + `","type":"message","status":"` + responseStatus(c, done) + `","role":"assistant","content":[` + content + `]}`
}

func (openai) outputText(c *call, done bool) string {
	text := ""
	if done {
		text = c.text(0, c.perChoice)
	}
	return `{"type":"output_text","annotations":[],"text":"` + text + `"}`
}

// responseEvent is a typed event with these members.
// https://platform.openai.com/docs/api-reference/responses-streaming
func responseEvent(c *call, kind, members string) string {
	c.sequence++
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + `","sequence_number":` + strconv.Itoa(c.sequence-1) + members + endOfEvent
}

const endOfEvent = "}\n\n"

// inItem is where in the response an event belongs.
func inItem(c *call) string {
	return `,"item_id":"msg_` + c.id + `","output_index":0,"content_index":0`
}

// toolEvent is an event of the call of a tool.
func toolEvent(c *call, kind, member, value string) string {
	return responseEvent(c, "response.function_call_arguments."+kind, `,"item_id":"fc_`+c.id+`","output_index":0,"`+member+`":`+value)
}

func (o openai) openResponse(c *call) string {
	out := responseEvent(c, "response.created", `,"response":`+o.response(c, false)) +
		responseEvent(c, "response.in_progress", `,"response":`+o.response(c, false)) +
		responseEvent(c, "response.output_item.added", `,"output_index":0,"item":`+o.outputItem(c, false))
	if c.tool != "" {
		return out + toolEvent(c, "delta", "delta", `"`+argumentsBegin+`"`)
	}
	return out + responseEvent(c, "response.content_part.added", inItem(c)+`,"part":`+o.outputText(c, false))
}

func (o openai) closeResponse(c *call) (out string) {
	if c.tool != "" {
		out = toolEvent(c, "delta", "delta", `"`+argumentsEnd+`"`) + toolEvent(c, "done", "arguments", c.arguments())
	} else {
		out = responseEvent(c, "response.output_text.done", inItem(c)+`,"text":"`+c.text(0, c.perChoice)+`"`) +
			responseEvent(c, "response.content_part.done", inItem(c)+`,"part":`+o.outputText(c, true))
	}
	return out + responseEvent(c, "response.output_item.done", `,"output_index":0,"item":`+o.outputItem(c, true)) +
		responseEvent(c, "response."+responseStatus(c, true), `,"response":`+o.response(c, true))
}
