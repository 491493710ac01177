package batch_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/sim"
)

// TestUpstreamsAnswerEqualLinesOnce: whoever answers the one call, all lines of its set have the answer, also of standard
// input.
func TestUpstreamsAnswerEqualLinesOnce(t *testing.T) {
	input := chat(1) + "\n" + chat(2) + "\n" + strings.Replace(chat(1), `"1"`, `"3"`, 1) + "\n" + strings.Replace(chat(1), `"1"`, `"4"`, 1) + "\n"
	for _, from := range []string{"file", "standard input"} {
		t.Run(from, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, server := newFarm(t), newSim(t, sim.Config{})
				f.add("a", server.Transport())
				f.add("b", server.Transport())
				files := newFiles(t, input)
				rep, err := f.run(files, func(cfg *batch.Config) {
					cfg.Cache = t.TempDir()
					if from != "file" {
						cfg.Input, cfg.Stdin = "-", io.Reader(strings.NewReader(input))
					}
				})
				if err != nil || rep.Left() != 0 || rep.Done != 4 {
					t.Errorf("%d done and %d left: %v", rep.Done, rep.Left(), err)
				}
				if calls := server.Stats().Requests; calls != 2 {
					t.Errorf("%d calls for 2 requests", calls)
				}
				if rep.Cached != 2 || len(files.results(t)) != 4 {
					t.Errorf("%+v", rep)
				}
			})
		})
	}
}
