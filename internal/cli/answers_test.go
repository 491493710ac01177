package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/sluice-llm/sluice/provider"
)

// answerLine is a line of answers as encoding/json reads it.
type answerLine struct {
	ID      string   `json:"custom_id"`     // ID of the item.
	Text    *string  `json:"text"`          // Response text, or arguments of tool calls.
	Texts   []string `json:"texts"`         // Texts of all choices, if several exist.
	Finish  string   `json:"finish_reason"` // Finish reason from the provider.
	Refusal string   `json:"refusal"`       // Refusal text from the model.
	Error   string   `json:"error"`         // Kind of the failure.
	Message string   `json:"message"`       // Error message, without keys.
}

func TestALineOfAnswersHasTheFieldsOfItsType(t *testing.T) {
	var b bytes.Buffer
	form := &jsonAnswers{w: bufio.NewWriter(&b)}
	err := form.answer(&answer{id: "a", kind: "invalid_output", message: "m", replies: []provider.Reply{{Text: "one", Finish: "stop", Refusal: "no"}, {Text: "two"}}})
	if err != nil || form.end() != nil {
		t.Fatal(err)
	}
	var got answerLine
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if want := (answerLine{"a", new("one"), []string{"one", "two"}, "stop", "no", "invalid_output", "m"}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
}
