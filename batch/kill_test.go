package batch_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

// TestMain makes the test binary its own child: with BATCH_CHILD it runs the batch of these paths and ends.
func TestMain(m *testing.M) {
	if in, out, ok := strings.Cut(os.Getenv("BATCH_CHILD"), "|"); ok {
		if err := childRun(files{in, out}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	suite.InMemory()
	os.Exit(m.Run())
}

// childRun runs a batch and prints a line for each request before it is answered.
func childRun(f files) error {
	sims, _ := provider.Lookup("sim")
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 4}})
	if err != nil {
		return err
	}
	defer s.Close()
	b, err := batch.Open(batch.Config{
		Input: f.in, Output: f.out, Provider: sims,
		Scheduler: func(provider.Provider) (*sluice.Scheduler, error) { return s, nil },
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			call := &stub{}
			resp, err := call.RoundTrip(r)
			_, after, _ := strings.Cut(call.sent[0].body, "What is ")
			id, _, _ := strings.Cut(after, "?")
			fmt.Println(id)
			return resp, err
		}),
	})
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = b.Run(context.Background())
	return err
}

func TestAKilledRunResumes(t *testing.T) {
	const n, slots = 300, 4
	f := newFiles(t, chats(n))
	calls := 0
	for round := 0; ; round++ {
		recorded := make(map[string]bool)
		if b, err := os.ReadFile(f.out); err == nil {
			for line := range strings.Lines(string(b)) {
				if strings.HasSuffix(line, "\n") {
					_, rest, _ := strings.Cut(line, `"custom_id":"`)
					id, _, _ := strings.Cut(rest, `"`)
					recorded[id] = true
				}
			}
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "BATCH_CHILD="+f.in+"|"+f.out)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		seen := 0
		for lines := bufio.NewScanner(out); lines.Scan(); seen++ {
			if id := lines.Text(); recorded[id] {
				t.Errorf("%s was recorded before round %d, and called in it", id, round)
			}
			if round < 4 && seen == 50 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		calls += seen
		if err := cmd.Wait(); err == nil {
			break
		} else if round == 4 {
			t.Fatal(err)
		}
	}
	if got := len(f.results(t)); got != n {
		t.Errorf("%d results for %d lines", got, n)
	}
	if most := n + 4*slots; calls > most {
		t.Errorf("%d calls for %d lines and 4 kills: want at most %d", calls, n, most)
	}
}
