package batchjob

import (
	"encoding/json"

	"github.com/sluice-llm/sluice/provider"
)

// ProblemIn is what a batch with these errors failed with.
func ProblemIn(p provider.Provider, key string, errors []byte) Problem {
	o := &openAI{caller{p: p, to: provider.Target{Key: key}}}
	return *o.whole(&openAIBatch{Errors: json.RawMessage(errors)})
}
