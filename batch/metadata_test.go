package batch_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/batch"
)

func TestFieldsThatTheEndpointDoesNotKnowAreKeptWithTheResult(t *testing.T) {
	const row = `{"custom_id":"a","prompt":"x","temperature":0.5,"source":{"page": 3},"label":"y"}`
	for name, test := range map[string]struct {
		input      string
		template   string
		sent, kept string // members of the body beside the prompt's own; of the result's metadata
	}{
		"of a prompt":   {row, "", `{"temperature":0.5}`, `{"label":"y","source":{"page":3}}`},
		"of a template": {row, "About {{.label}}", `{}`, ""},
	} {
		for _, from := range []string{"a file", "standard input"} {
			t.Run(name+", "+from, func(t *testing.T) {
				f, rt := newFiles(t, test.input+"\n"), &stub{}
				cfg := f.config(t, rt)
				cfg.Model, cfg.Template = "m", test.template
				if from == "standard input" {
					cfg.Input, cfg.Stdin = "-", strings.NewReader(test.input+"\n")
				}
				if _, err := run(t, cfg); err != nil {
					t.Fatal(err)
				}
				var body map[string]json.RawMessage
				if err := json.Unmarshal([]byte(rt.sent[0].body), &body); err != nil {
					t.Fatal(err)
				}
				delete(body, "model")
				delete(body, "messages")
				if got, _ := json.Marshal(body); string(got) != test.sent {
					t.Errorf("sent %s, want %s", got, test.sent)
				}
				b, err := os.ReadFile(f.out)
				if err != nil {
					t.Fatal(err)
				}
				var r struct {
					Sluice struct{ Metadata map[string]json.RawMessage }
				}
				if err := json.Unmarshal(b, &r); err != nil {
					t.Fatal(err)
				}
				got := ""
				if r.Sluice.Metadata != nil {
					b, _ := json.Marshal(r.Sluice.Metadata)
					got = string(b)
				}
				if got != test.kept {
					t.Errorf("kept %s, want %s", got, test.kept)
				}
			})
		}
	}
}

func TestFieldsOfATableAreNeitherSentNorKept(t *testing.T) {
	for name, c := range map[string]struct{ input, template string }{
		"t.csv":   {"prompt,temperature,page\nx,0.5,3\n", ""},
		"t.jsonl": {`{"q":"x","temperature":0.5,"page":"3"}` + "\n", "About {{.q}}"},
	} {
		f, rt := newFiles(t, ""), &stub{}
		cfg := f.config(t, rt)
		cfg.Input, cfg.Model, cfg.Template = writeInput(t, name, c.input), "m", c.template
		b, err := batch.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.PromptFields(); len(got.Sent)+len(got.Kept) > 0 {
			t.Errorf("%s: fields %+v", name, got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestARowWithAPromptStaysAPromptRow(t *testing.T) {
	for _, c := range []struct {
		row, kept string // kept "": it is none
	}{
		{`{"prompt":"a","url":"https://x"}`, `{"url":"https://x"}`},
		{`{"prompt":"a","input":"x"}`, `{"input":"x"}`},
		{`{"prompt":"a","params":{"n":1},"request":"r","key":"k"}`, `{"params":{"n":1},"request":"r","key":"k"}`},
		{`{"prompt":"a","messages":[{"role":"user","content":"b"}]}`, ""},
		{`{"prompt":{"id":"p"},"input":"x"}`, ""},
	} {
		f, rt := newFiles(t, c.row+"\n"), &stub{}
		cfg := f.config(t, rt)
		cfg.Model = "m"
		if rep, err := run(t, cfg); err != nil || rep.Failed > 0 {
			t.Errorf("%s: %+v, error %v", c.row, rep.Kinds, err)
			continue
		}
		isPrompt := strings.Contains(rt.sent[0].body, `"messages":[{"role":"user","content":"a"}]`)
		b, err := os.ReadFile(f.out)
		if err != nil {
			t.Fatal(err)
		}
		if isPrompt != (c.kept != "") || isPrompt && !strings.Contains(string(b), `"custom_id":"1"`) || !strings.Contains(string(b), `"metadata":`+c.kept) && isPrompt {
			t.Errorf("%s: sent %s, recorded %s", c.row, rt.sent[0].body, b)
		}
	}
}

func TestAFieldWhereThePromptGoesIsKept(t *testing.T) {
	input := writeInput(t, "in.jsonl", `{"prompt":"a","input":"x","model":"text-embedding-3-small"}`+"\n")
	bodies, _ := sentBodies(t, batch.Config{Input: input})
	if len(bodies) != 1 || strings.Count(bodies[0], `"input"`) != 1 || !strings.Contains(bodies[0], `"a"`) {
		t.Errorf("sent %s", bodies)
	}
}

func TestEqualRequestsKeepTheirOwnMetadata(t *testing.T) {
	input := `{"custom_id":"a","prompt":"x","n_of":1}` + "\n" + `{"custom_id":"b","prompt":"x","n_of":2}` + "\n"
	for _, from := range []string{"a file", "standard input"} {
		f, rt := newFiles(t, input), &stub{}
		cfg := f.config(t, rt)
		cfg.Model, cfg.Cache = "m", t.TempDir()
		if from == "standard input" {
			cfg.Input, cfg.Stdin = "-", strings.NewReader(input)
		}
		b, err := batch.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		fields := b.PromptFields()
		b.Close()
		if !slices.Equal(fields.Kept, []string{"n_of"}) || len(fields.Sent) > 0 {
			t.Errorf("%s: fields %+v", from, fields)
		}
		recs, err := batch.OpenRecordings(f.out)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rec, err := range recs.All() {
			n++
			want := map[string]string{"a": "1", "b": "2"}[rec.ID]
			if err != nil || string(rec.Sluice.Metadata) != `{"n_of":`+want+`}` {
				t.Errorf("%s: %s has %s, error %v", from, rec.ID, rec.Sluice.Metadata, err)
			}
		}
		recs.Close()
		if rt.count() != 1 || n != 2 {
			t.Errorf("%s: %d requests and %d results", from, rt.count(), n)
		}
	}
}
