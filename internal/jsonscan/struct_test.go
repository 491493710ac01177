package jsonscan_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"pgregory.net/rapid"
)

type record struct {
	Text  string          `json:"text"`
	Count int             `json:"count,omitzero"`
	Share float64         `json:"share"`
	Flag  bool            `json:"flag"`
	Raw   json.RawMessage `json:"raw,omitzero"`
	Inner struct {
		MS int64 `json:"ms"`
	} `json:"inner"`
	Cost *float64 `json:"cost"`
	Next *record  `json:"next"`
}

func records(depth int) *rapid.Generator[record] {
	return rapid.Custom(func(t *rapid.T) record {
		r := record{Text: rapid.String().Draw(t, "text"), Count: rapid.Int().Draw(t, "count"), Flag: rapid.Bool().Draw(t, "flag")}
		r.Share = rapid.Float64Range(-1e9, 1e9).Draw(t, "share")
		r.Raw = rapid.SampledFrom([]json.RawMessage{nil, []byte(`{"a":[1,"x"]}`), []byte("7")}).Draw(t, "raw")
		r.Inner.MS = rapid.Int64().Draw(t, "ms")
		if rapid.Bool().Draw(t, "costs") {
			r.Cost = &r.Share
		}
		if depth > 0 {
			next := records(depth-1).Draw(t, "next")
			r.Next = &next
		}
		return r
	})
}

// TestStructsAreReadAndWrittenLikeThoseOfEncodingJSON also reads what encoding/json writes, with its escapes.
func TestStructsAreReadAndWrittenLikeThoseOfEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := records(1).Draw(t, "record")
		line := jsonscan.AppendStruct(nil, &want)
		var plain record
		if err := json.Unmarshal(line, &plain); err != nil || !reflect.DeepEqual(plain, want) {
			t.Fatalf("%s: %+v, %v", line, plain, err)
		}
		other, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{line, other} {
			var got record
			s := jsonscan.New(b)
			if err := s.Struct(&got); err != nil || !s.End() || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v, %v", b, got, err)
			}
		}
	})
}

func TestAStructNamesTheMemberOfAnotherType(t *testing.T) {
	for text, want := range map[string]string{
		`{"text":1}`: "text: not a text", `{"count":"x"}`: "count: not a whole number", `{"count":1.5}`: "count: not a whole number",
		`{"share":true}`: "share: not a number", `{"flag":0}`: "flag: not true or false", `{"next":[]}`: "next: not an object",
		`{"next":{"inner":{"ms":{}}}}`: "next: inner: ms: not a whole number", `[]`: "not an object",
		`{"text":null,"cost":null,"unknown":{"text":1},"raw":[1]}`: "",
	} {
		var r record
		s := jsonscan.New([]byte(text))
		if err := s.Struct(&r); err != nil && err.Error() != want || err == nil && want != "" || !s.End() {
			t.Errorf("%s: %v", text, err)
		}
	}
	r := record{Raw: json.RawMessage("no JSON")}
	if got := string(jsonscan.AppendStruct(nil, &r)); got != `{"text":"","share":0,"flag":false,"raw":"no JSON","inner":{"ms":0},"cost":null,"next":null}` {
		t.Error(got)
	}
}
