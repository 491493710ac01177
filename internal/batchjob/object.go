package batchjob

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// object has the members of a JSON object as texts, without members that are null. A member of another type is a zero value.
type object map[string][]byte

// parseObject reports whether the text is one object.
func parseObject(text []byte) (o object, whole bool) {
	o, whole = jsonscan.Members(text)
	for name, value := range o {
		if string(value) == "null" {
			delete(o, name)
		}
	}
	return o, whole
}

func (o object) object(name string) object {
	inner, _ := parseObject(o[name])
	return inner
}

func (o object) text(name string) string {
	if value := o[name]; len(value) > 1 && value[0] == '"' {
		return string(jsonscan.Unquote(value))
	}
	return ""
}

// number returns a whole number, which Protobuf may write as a string (https://protobuf.dev/programming-guides/json).
func (o object) number(name string) int {
	n, err := strconv.Atoi(strings.Trim(string(o[name]), `"`))
	if err != nil || n > 1e9 {
		return 0
	}
	return n
}

// instant returns an instant in the form of RFC 3339 or in seconds since 1970.
func (o object) instant(name string) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, o.text(name)); err == nil {
		return t.UTC()
	}
	if s, err := strconv.ParseFloat(string(o[name]), 64); err == nil && s > 0 && s < 1e11 {
		return time.Unix(int64(s), 0).UTC()
	}
	return time.Time{}
}

// streamed are members that ask for a stream, which batches do not have: Anthropic rejects stream
// (https://platform.claude.com/docs/en/build-with-claude/batch-processing), and OpenAI rejects stream_options without it
// (https://platform.openai.com/docs/api-reference/chat/create).
var streamed = []string{"stream", "stream_options"}

// appendBody appends the body of a request without the streamed members.
func appendBody(dst, body []byte) []byte {
	start := len(dst)
	dst, whole := jsonscan.AppendMembers(append(dst, '{'), body, func(name, value []byte) []byte {
		if slices.Contains(streamed, string(name)) {
			return nil
		}
		return value
	})
	if !whole { // the provider rejects it
		return append(dst[:start], body...)
	}
	return append(dst, '}')
}
