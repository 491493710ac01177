package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
)

// explainPending says what goes on at the provider after a run that ended early, and how it is taken up or called off.
func explainPending(e *fault.Error, all []batch.Part, o *runOptions) {
	text := runinfo.NewParts(all).Continuing(time.Now())
	if text == "" || fault.Is[*batch.LostError](e.Err) {
		return
	}
	join := "%w; %s"
	if strings.HasSuffix(e.Err.Error(), ".") { // as providers' messages end, and text may begin a sentence
		join = "%w %s"
	}
	e.Err = fmt.Errorf(join, e.Err, text)
	if o.cancel { // it is what is hinted otherwise
		e.Hint = cmp.Or(e.Hint, sameCommand+": "+o.command())
		return
	}
	if e.Hint == "" || e.Code == fault.Interrupted {
		e.Hint = "collect pending batches with the same command, or add --cancel to cancel the batches: " + o.command()
	}
}

// calledOff says what a run left that called off what was pending: was is how many parts that were.
func (o *runOptions) calledOff(was, left int) string {
	var words []string
	if was == 0 {
		words = append(words, "no batches were pending")
	}
	if left > 0 {
		verb := "are"
		if left == 1 {
			verb = "is"
		}
		words = append(words, fmt.Sprintf("%s %s remaining: %s", prose.Count(left, "item"), verb, o.withoutCancel().command()))
	}
	return strings.Join(words, "; ")
}

// withoutCancel are the flags of a run that does what --cancel left, by the same way.
func (o *runOptions) withoutCancel() *runOptions {
	if !o.cancel {
		return o
	}
	less := *o
	less.args = slices.DeleteFunc(slices.Clone(o.args), func(word string) bool {
		name, _, _ := strings.Cut(word, "=")
		return name == "--cancel"
	})
	if !o.batch {
		less.args = append(less.args, "--batch")
	}
	return &less
}
