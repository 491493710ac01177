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

// explainPending adds the batches that continue at the provider to the error of a run, and how to collect or cancel them.
func explainPending(e *fault.Error, all []batch.Part, o *runOptions) {
	text := runinfo.NewParts(all).Continuing(time.Now())
	if text == "" || fault.Is[*batch.LostError](e.Err) {
		return
	}
	join := "%w; %s"
	if strings.HasSuffix(e.Err.Error(), ".") { // as messages of providers end
		join = "%w %s"
	}
	e.Err = fmt.Errorf(join, e.Err, text)
	switch line := o.line(); {
	case o.cancel: // other hints suggest --cancel
		e.Hint = cmp.Or(e.Hint, line.resume())
	case e.Hint == "" || e.Code == fault.Interrupted:
		e.Hint = "collect pending batches with the same command, or add --cancel to cancel the batches: " + line.with()
	}
}

// canceled describes the end of a run that canceled the pending batches, and the remaining items.
func (o *runOptions) canceled(pending, left int) string {
	var words []string
	if pending == 0 {
		words = append(words, "no batches were pending")
	}
	if left > 0 {
		verb := "are"
		if left == 1 {
			verb = "is"
		}
		words = append(words, fmt.Sprintf("%s %s remaining: %s", prose.Count(left, "item"), verb, o.lineWithoutCancel().with()))
	}
	return strings.Join(words, "; ")
}

// lineWithoutCancel returns the command line that sends the remaining items after --cancel, by Batch APIs too.
func (o *runOptions) lineWithoutCancel() commandLine {
	line := o.line()
	if !o.cancel {
		return line
	}
	line.own = slices.DeleteFunc(slices.Clone(line.own), func(word string) bool {
		return word == "--cancel" || strings.HasPrefix(word, "--cancel=")
	})
	if !o.batch {
		line.own = append(line.own, "--batch")
	}
	return line
}
