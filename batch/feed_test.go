package batch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
)

// TestAnInputThatIsCutMeanwhileIsNamed: somebody empties the file, or cuts it between two lines, once it was checked.
func TestAnInputThatIsCutMeanwhileIsNamed(t *testing.T) {
	for name, left := range map[string]int{"all of it": 0, "its last two lines": 3} {
		t.Run(name, func(t *testing.T) {
			text := chats(5)
			f := newFiles(t, text)
			b, err := batch.Open(f.config(t, &stub{}))
			if err != nil {
				t.Fatal(err)
			}
			f.input(t, strings.Join(strings.SplitAfter(text, "\n")[:left], ""))
			rep, err := b.Run(t.Context())
			if gone, ok := errors.AsType[*batch.InputError](err); !ok || gone.Line != left+1 || gone.Hint == "" || rep.Done > left {
				t.Errorf("%d done, %v", rep.Done, err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			state, err := work.LoadState(work.StatePath(f.out))
			if err != nil || state.Status != work.Failed {
				t.Errorf("the state says %s, %v", state.Status, err)
			}

			f.input(t, text)
			if again, err := run(t, f.config(t, &stub{})); err != nil || again.Already != rep.Done || len(f.results(t)) != 5 {
				t.Errorf("then %d were done, and %d more, %v", again.Already, again.Done, err)
			}
		})
	}
}
