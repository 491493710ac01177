package batchjob

import "github.com/sluice-llm/sluice/provider"

// ProblemIn returns the problem of a batch of OpenAI that failed with these errors.
func ProblemIn(p provider.Provider, key string, errors []byte) Problem {
	c := &client{form: openAI(), p: p, to: provider.Target{Key: key}}
	return *c.batchOf(object{"id": []byte(`"b"`), "status": []byte(`"failed"`), "errors": errors}).Problem
}

// SaveBy has a function save the table.
func (c *Config) SaveBy(by func(save func() error) error) {
	c.save = func(f folder, rows []Row) error { return by(func() error { return f.save(rows) }) }
}

// ParseRows reads the text of a saved table.
var ParseRows = parseRows
