package sim

import (
	"bytes"
	"encoding/json"
)

// Models that are offered tools call the first of them, with the text of their answer as an argument, until they get to see what
// came of a call.

// offered is the name of the first tool in the value of "tools"; empty if there is none with a name, which the provider's own
// have not. Gemini's are in a list of a list.
func offered(value []byte) string {
	type tool struct {
		Name     string
		Function struct{ Name string }
	}
	var tools []struct {
		tool
		Declarations []tool `json:"functionDeclarations"`
		Spelled      []tool `json:"function_declarations"`
	}
	_ = json.Unmarshal(value, &tools) // what is not understood is not there
	for _, t := range tools {
		for _, one := range append([]tool{t.tool}, append(t.Declarations, t.Spelled...)...) {
			if one.Name+one.Function.Name != "" {
				return one.Name + one.Function.Name
			}
		}
	}
	return ""
}

// callsTool reports whether the answer is a call of the tool that was offered.
func (c *call) callsTool(body []byte) bool {
	if c.tool == "" || c.noTool {
		return false
	}
	for _, result := range [...]string{`"tool_call_id"`, `"tool_use_id"`, `"function_call_output"`, `"functionResponse"`, `"function_response"`} {
		if bytes.Contains(body, []byte(result)) {
			return false
		}
	}
	return true
}

// Arguments of a call are an object with one text, here as they stand within a JSON string.
const (
	argumentsBegin = `{\"text\":\"`
	argumentsEnd   = `\"}`
)

// arguments appends the arguments as a JSON string.
func (c *call) arguments(b []byte) []byte {
	b = append(b, `"`+argumentsBegin...)
	b = c.appendText(b, 0, c.perChoice)
	return append(b, argumentsEnd+`"`...)
}

// inputObject appends the arguments as an object.
func (c *call) inputObject(b []byte) []byte {
	b = append(b, `{"text":"`...)
	b = c.appendText(b, 0, c.perChoice)
	return append(b, `"}`...)
}

// message appends the message of a completion.
func (openai) message(b []byte, c *call) []byte {
	b = append(b, `{"role":"assistant","content":`...)
	if c.tool == "" {
		b = append(b, '"')
		b = c.appendText(b, 0, c.perChoice)
		b = append(b, '"')
	} else {
		// https://platform.openai.com/docs/guides/function-calling?api-mode=chat
		b = append(b, `null,"tool_calls":[{"id":"call_`...)
		b = append(b, c.id...)
		b = append(b, `","type":"function","function":{"name":`...)
		b = appendString(b, c.tool)
		b = append(b, `,"arguments":`...)
		b = c.arguments(b)
		b = append(b, `}}]`...)
	}
	return append(b, `,"refusal":null,"annotations":[]}`...)
}

// openTool begins the call of a tool in a stream of chunks.
func (o openai) openTool(b []byte, c *call, choice int) []byte {
	b = o.chunk(b, c, choice, `{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_`+c.id+
		`","type":"function","function":{"name":`+string(appendString(nil, c.tool))+`,"arguments":""}}],"refusal":null}`, `null`)
	return o.toolChunk(b, c, choice, argumentsBegin)
}

func (o openai) toolChunk(b []byte, c *call, choice int, text string) []byte {
	return o.chunk(b, c, choice, `{"tool_calls":[{"index":0,"function":{"arguments":"`+text+`"}}]}`, `null`)
}

// toolItem is a call of a tool as an item of a response.
// https://platform.openai.com/docs/guides/function-calling?api-mode=responses
func (openai) toolItem(b []byte, c *call, done bool) []byte {
	b = append(b, `{"id":"fc_`...)
	b = append(b, c.id...)
	b = append(b, `","type":"function_call","status":"`...)
	b = append(b, responseStatus(c, done)...)
	b = append(b, `","call_id":"call_`...)
	b = append(b, c.id...)
	b = append(b, `","name":`...)
	b = appendString(b, c.tool)
	b = append(b, `,"arguments":`...)
	if done {
		b = c.arguments(b)
	} else {
		b = append(b, `""`...)
	}
	return append(b, '}')
}

// toolEvent appends an event of a call of a tool, whose last member is next.
func toolEvent(b []byte, c *call, kind, member string) []byte {
	b = responseEvent(b, c, "response.function_call_arguments."+kind)
	b = append(b, `,"item_id":"fc_`...)
	b = append(b, c.id...)
	return append(b, `","output_index":0,"`+member+`":`...)
}

func toolDelta(b []byte, c *call, text string) []byte {
	b = toolEvent(b, c, "delta", "delta")
	return append(b, `"`+text+`"`+endOfEvent...)
}

// block appends the block that an answer of Anthropic's consists of.
func (anthropic) block(b []byte, c *call) []byte {
	if c.tool == "" {
		b = append(b, `{"type":"text","text":"`...)
		b = c.appendText(b, 0, c.perChoice)
		return append(b, `"}`...)
	}
	// https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview
	b = append(b, `{"type":"tool_use","id":"toolu_`...)
	b = append(b, c.id...)
	b = append(b, `","name":`...)
	b = appendString(b, c.tool)
	b = append(b, `,"input":`...)
	b = c.inputObject(b)
	return append(b, '}')
}

// blockStart begins that block in a stream.
func (anthropic) blockStart(b []byte, c *call) []byte {
	b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":"...)
	if c.tool == "" {
		b = append(b, `{"type":"text","text":""}`...)
	} else {
		b = append(b, `{"type":"tool_use","id":"toolu_`...)
		b = append(b, c.id...)
		b = append(b, `","name":`...)
		b = appendString(b, c.tool)
		b = append(b, `,"input":{}}`...)
	}
	return append(b, endOfEvent...)
}

// blockDelta appends a part of it.
func (anthropic) blockDelta(b []byte, c *call, text string) []byte {
	b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\""...)
	if c.tool == "" {
		b = append(b, `text_delta","text":"`...)
	} else {
		b = append(b, `input_json_delta","partial_json":"`...)
	}
	b = append(b, text...)
	return append(b, "\"}"+endOfEvent...)
}

// functionCall appends the part that a candidate's content consists of.
// https://ai.google.dev/gemini-api/docs/function-calling
func (gemini) functionCall(b []byte, c *call) []byte {
	b = append(b, `{"functionCall":{"name":`...)
	b = appendString(b, c.tool)
	b = append(b, `,"args":`...)
	b = c.inputObject(b)
	return append(b, `}}`...)
}
