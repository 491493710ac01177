package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

// tools are what writers may use.
func tools() []openai.ChatCompletionToolUnionParam {
	return []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name:        "count_words",
		Description: openai.String("Says how many words a text has."),
		Parameters: shared.FunctionParameters{
			"type":       "object",
			"properties": map[string]any{"text": map[string]any{"type": "string"}},
			"required":   []string{"text"},
		},
	})}
}

// use returns what a tool says. What the model did wrong it is told, and may do better.
func use(name, arguments string) string {
	var on struct{ Text string }
	if name != "count_words" {
		return fmt.Sprintf("there is no tool %q", name)
	}
	if err := json.Unmarshal([]byte(arguments), &on); err != nil {
		return fmt.Sprintf("these are no arguments: %v", err)
	}
	return fmt.Sprintf("%d words", len(strings.Fields(on.Text)))
}
