package batch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// FailOn is a set of responses that count as failures, although the provider sent them as a success.
type FailOn uint8

// Responses that FailOn names.
const (
	FailOnLength        FailOn = 1 << iota // cut off at a bound of its length
	FailOnContentFilter                    // held back by the provider's filter, or a part of it
	FailOnRefusal                          // the model declined
	FailOnEmpty                            // neither text nor a tool call
)

// failOnNames returns the names of the constants, in order.
func failOnNames() []string { return []string{"length", "content_filter", "refusal", "empty"} }

// UnmarshalText reads names with commas between them.
func (f *FailOn) UnmarshalText(b []byte) error {
	*f = 0
	if len(b) == 0 {
		return nil
	}
next:
	for name := range strings.SplitSeq(string(b), ",") {
		for i, word := range failOnNames() {
			if strings.TrimSpace(name) == word {
				*f |= 1 << i
				continue next
			}
		}
		return fmt.Errorf("%q is not one of %s", name, strings.Join(failOnNames(), ", "))
	}
	return nil
}

// Rules say which answers are accepted. The zero value accepts all.
type Rules struct {
	Schema *Schema // every choice's content must fit it; nil is none
	FailOn FailOn  // no choice may be one of these
}

// Check is for Config.Check. Embeddings have nothing to check.
func (r Rules) Check(_ string, e provider.Endpoint, body []byte) error {
	if e.Embeds() {
		return nil
	}
	replies := provider.Replies(body)
	if len(replies) == 0 {
		replies = make([]provider.Reply, 1) // an answer without choices is an empty one
	}
	for i, reply := range replies {
		err := r.CheckReply(reply)
		if err != nil && len(replies) > 1 {
			return fmt.Errorf("choice %d of %d: %w", i+1, len(replies), err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// CheckReply checks one choice.
func (r Rules) CheckReply(reply provider.Reply) error {
	switch {
	case r.FailOn&FailOnLength != 0 && reply.Cut():
		return fmt.Errorf("the response is cut off: %s", reply.Finish)
	case r.FailOn&FailOnContentFilter != 0 && reply.Filtered():
		return fmt.Errorf("the response was filtered: %s", said(&reply))
	case r.FailOn&FailOnRefusal != 0 && reply.Refused():
		return fmt.Errorf("the model refused to answer: %s", said(&reply))
	case r.FailOn&FailOnEmpty != 0 && reply.Empty():
		return errors.New("the response is empty")
	case r.Schema != nil:
		return r.fits(&reply)
	}
	return nil
}

// fits checks a choice against the schema: its text, and where there is none, the arguments of its tool calls.
func (r Rules) fits(reply *provider.Reply) (err error) {
	if reply.Text == "" && len(reply.Calls) > 0 {
		for _, call := range reply.Calls {
			if err = r.Schema.Check(call); err != nil {
				return err
			}
		}
		return nil
	}
	err = r.Schema.Check(reply.Text)
	switch {
	case err == nil:
		return nil
	case reply.Refusal != "":
		return fmt.Errorf("%w: the model or a filter refused to answer: %s", err, said(reply))
	case reply.Cut():
		return fmt.Errorf("%w: the response is cut off: %s", err, reply.Finish)
	case reply.Empty():
		return fmt.Errorf("%w: the response is empty", err)
	}
	return err
}

// said is what a refusal said.
func said(reply *provider.Reply) string { return prose.Clip(reply.Refusal, mostFaultText) }
