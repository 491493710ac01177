package batch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// Flaws are sorts of answers that are not wanted though they came well.
type Flaws uint8

// The sorts.
const (
	FlawLength        Flaws = 1 << iota // cut off at a bound of its length
	FlawContentFilter                   // held back by the provider's filter, or a part of it
	FlawRefusal                         // the model declined
	FlawEmpty                           // neither text nor a tool call
)

// flawWords are the sorts' names, in order.
func flawWords() []string { return []string{"length", "content_filter", "refusal", "empty"} }

// UnmarshalText reads names with commas between them.
func (f *Flaws) UnmarshalText(b []byte) error {
	*f = 0
	if len(b) == 0 {
		return nil
	}
next:
	for name := range strings.SplitSeq(string(b), ",") {
		for i, word := range flawWords() {
			if strings.TrimSpace(name) == word {
				*f |= 1 << i
				continue next
			}
		}
		return fmt.Errorf("%q is none of %s", name, strings.Join(flawWords(), ", "))
	}
	return nil
}

// Rules say which answers are accepted. The zero value accepts all.
type Rules struct {
	Schema *Schema // every choice's content must fit it; nil is none
	FailOn Flaws   // no choice may have one of these
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
		err := r.check(&reply)
		if err != nil && len(replies) > 1 {
			return fmt.Errorf("choice %d of %d: %w", i+1, len(replies), err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// check checks one choice.
func (r Rules) check(reply *provider.Reply) error {
	switch {
	case r.FailOn&FlawLength != 0 && reply.Cut():
		return fmt.Errorf("the answer is cut off: %s", reply.Finish)
	case r.FailOn&FlawContentFilter != 0 && reply.Filtered():
		return fmt.Errorf("the answer is filtered: %s", said(reply))
	case r.FailOn&FlawRefusal != 0 && reply.Refused():
		return fmt.Errorf("the model refused: %s", said(reply))
	case r.FailOn&FlawEmpty != 0 && reply.Empty():
		return errors.New("the answer is empty")
	case r.Schema != nil:
		return r.fits(reply)
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
		return fmt.Errorf("%w: the model or a filter refused: %s", err, said(reply))
	case reply.Cut():
		return fmt.Errorf("%w: it is cut off: %s", err, reply.Finish)
	case reply.Empty():
		return fmt.Errorf("%w: it is empty", err)
	}
	return err
}

// said is what a refusal said.
func said(reply *provider.Reply) string { return prose.Clip(reply.Refusal, mostFaultText) }
