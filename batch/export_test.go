package batch

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Parsed is what ParseLine made of a line.
type Parsed struct {
	ID   string
	Path string
	Body []byte
	Hash work.Hash
}

// ParseLine parses one line as Open does, for a run against the imitation with a model given.
func ParseLine(line []byte, number int) (Parsed, error) {
	sims, _ := provider.Lookup("sim")
	set := map[string]json.RawMessage{"x": []byte("1"), "y.z": []byte("2")}
	p, err := newParser(&Config{Provider: sims, Model: "m", System: "s", MaxTokens: 3, Set: set})
	if err != nil {
		return Parsed{}, err
	}
	rq, bad := p.parse(&rows.Row{Line: work.Line{Number: number, Bytes: bytes.TrimSuffix(line, []byte("\r"))}})
	if bad != nil {
		return Parsed{}, errors.New(bad.Text)
	}
	path, err := rq.endpoint.Path(rq.model)
	return Parsed{ID: string(rq.id), Path: path, Body: rq.body, Hash: p.hash(&rq)}, err
}

// ResultLine is the line of a good result with that body.
func ResultLine(id string, body []byte) []byte {
	return appendResult(nil, &work.Result{ID: id, Response: work.Response{Status: 200, Payload: body}})
}

// Render makes the text of an object by a template.
func Render(text string, object []byte) (string, error) {
	r, err := newRenderer("t", text)
	if err != nil {
		return "", err
	}
	out, bad := r.render(rowFields(object))
	if bad != nil {
		return "", errors.New(bad.Text + "\n" + bad.Hint)
	}
	return string(out), nil
}

// ReadFields reads one line as FieldsOf does.
func ReadFields(line []byte, number int) InputFields {
	return inputFields(rows.NewFieldReader(), rows.Row{Line: work.Line{Number: number, Bytes: line}})
}

// FailWrites makes every further write of a result fail.
func (b *Batch) FailWrites() { b.journal.Close() }

// Spending returns the spending caps as they stand.
func (b *Batch) Spending() budget.Status { return b.guard.Status() }
