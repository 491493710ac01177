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
	_ = json.Unmarshal(value, &tools) // a value of another form is no tool
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

// arguments are the arguments as a JSON string.
func (c *call) arguments() string {
	return `"` + argumentsBegin + c.text(0, c.perChoice) + argumentsEnd + `"`
}

// inputObject is the arguments as an object.
func (c *call) inputObject() string { return `{"text":"` + c.text(0, c.perChoice) + `"}` }

// message is the message of a completion.
func (openai) message(c *call) string {
	content := ""
	if c.tool == "" {
		content = `"` + c.text(0, c.perChoice) + `"`
	} else {
		// https://platform.openai.com/docs/guides/function-calling?api-mode=chat
		content = `null,"tool_calls":[{"id":"call_` + c.id + `","type":"function","function":{"name":` + quote(c.tool) + `,"arguments":` + c.arguments() + `}}]`
	}
	return `{"role":"assistant","content":` + content + `,"refusal":null,"annotations":[]}`
}

// block is the block that an answer of Anthropic's consists of, or without its content the start of it.
// https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview
func (anthropic) block(c *call, whole bool) string {
	text, input := "", "{}"
	if whole {
		text, input = c.text(0, c.perChoice), c.inputObject()
	}
	if c.tool == "" {
		return `{"type":"text","text":"` + text + `"}`
	}
	return `{"type":"tool_use","id":"toolu_` + c.id + `","name":` + quote(c.tool) + `,"input":` + input + `}`
}

// functionCall is the part that a candidate's content consists of.
// https://ai.google.dev/gemini-api/docs/function-calling
func (gemini) functionCall(c *call) string {
	return `{"functionCall":{"name":` + quote(c.tool) + `,"args":` + c.inputObject() + `}}`
}
