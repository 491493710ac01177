package batch

import (
	"errors"

	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/work"
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
	p := newParser(fill{provider: sims, model: "m", system: "s", maxTokens: 3, set: []setting{{"x", []byte("1")}, {"y.z", []byte("2")}}})
	l := work.Line{Number: number, Bytes: line}
	clean(&l)
	rq, bad := p.parse(l.Bytes, number)
	if bad != nil {
		return Parsed{}, errors.New(bad.text)
	}
	path, err := rq.endpoint.Path(rq.model)
	return Parsed{ID: string(rq.id), Path: path, Body: rq.body, Hash: p.hash(&rq)}, err
}

// ResultLine is the line of a good result with that body.
func ResultLine(id string, body []byte) []byte {
	return appendResult(nil, &work.Result{ID: id, Status: 200, Payload: body}, 0, false)
}

// RecordedID is the custom_id that a resume reads.
func RecordedID(line []byte) (string, error) {
	rec, err := parseResult(line)
	return string(rec.id), err
}

// ParseRecording reads a line as Recordings does.
func ParseRecording(line []byte) (Recording, error) { return parseRecording(line) }

// ReadFields reads one line as FieldsOf does.
func ReadFields(line []byte, number int) InputFields {
	r := fieldReader{known: make(map[string]int)}
	return r.read(work.Line{Number: number, Bytes: line})
}
