package batch_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// writeInput writes an input of that name and returns where it is.
func writeInput(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sentBodies runs an input and returns the bodies that were sent, in their order as texts, and the recorded custom_ids in
// theirs.
func sentBodies(t *testing.T, cfg batch.Config) (bodies, ids []string) {
	t.Helper()
	var s stub
	f := newFiles(t, "")
	own := f.config(t, &s)
	cfg.Output, cfg.Provider, cfg.Transport, cfg.Scheduler = own.Output, own.Provider, own.Transport, own.Scheduler
	if rep, err := run(t, cfg); err != nil || rep.Failed > 0 {
		t.Fatal(rep.Kinds, err)
	}
	for _, one := range s.sent {
		bodies = append(bodies, one.body)
	}
	for id := range f.results(t) {
		ids = append(ids, id)
	}
	slices.Sort(bodies)
	slices.Sort(ids)
	return bodies, ids
}

func chatBody(model, prompt, system string) string {
	text := fmt.Sprintf(`{"model":%q,"messages":[`, model)
	if system != "" {
		text += fmt.Sprintf(`{"role":"system","content":%q},`, system)
	}
	return text + fmt.Sprintf(`{"role":"user","content":%q}]}`, prompt)
}

func TestATableIsPrompts(t *testing.T) {
	text := "\ufeffcustom_id, prompt ,system,model,messages,max_tokens,body,url\r\n" +
		"a,\"Say \"\"hi\"\",\r\nplease\",Be brief.,other,[],7,{},//x\r\n" +
		"\r\n" +
		",\"{\"\"prompt\"\":\"\"x\"\"}\",,,,,,\r\n" +
		"last,é,,,,,,"
	wantBodies := []string{
		chatBody("m", "é", ""), chatBody("m", `{"prompt":"x"}`, ""), chatBody("other", "Say \"hi\",\nplease", "Be brief."),
	}
	slices.Sort(wantBodies)
	wantIDs := []string{"5", "a", "last"}
	for name, cfg := range map[string]batch.Config{
		"a file by its name": {Input: writeInput(t, "in.CSV", text)},
		"tabs":               {Input: writeInput(t, "in.tsv", strings.ReplaceAll(strings.ReplaceAll(text, ",", "\t"), "\t\r\nplease", ",\r\nplease"))},
	} {
		cfg.Model = "m"
		bodies, ids := sentBodies(t, cfg)
		if diff := cmp.Diff(wantBodies, bodies) + cmp.Diff(wantIDs, ids); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestTablesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                             " line 1: the table is empty and has no header",
		"question\nWhy?\n":             ` line 1: the table has no column named prompt, only "question"`,
		"a,b,c,d,e,f,g,h,i,j,k\n":      ` line 1: the table has no column named prompt, only "a", "b", "c", "d", "e", "f", "g", "h", "i", "j" and 1 more`,
		"prompt,a\nx,1\ny\n":           " line 3: the row has 1 field, but the header has 2",
		"prompt,a\nx,1\ny\"\",2\n":     ` line 3: bare " in non-quoted-field (at column 2)`,
		"prompt,a\nx,1\n ,2\n":         " line 3: the prompt is empty",
		"prompt,custom_id\nx,1\ny,1\n": ` line 3: custom_id "1" is also in line 2`,
	} {
		path := writeInput(t, "in.csv", text)
		cfg := newFiles(t, "").config(t, &stub{err: errors.New("sent")})
		cfg.Input, cfg.Model = path, "m"
		_, err := batch.Open(cfg)
		if _, ok := errors.AsType[*batch.InputErrors](err); !ok || !strings.HasPrefix(err.Error(), path+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestRowsOfAPausedModelAreReadAgain: the rows of a model that pauses are put aside as places in the file. All of them come,
// as they were.
func TestRowsOfAPausedModelAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := suite.Size(1500, 4000)
		var text strings.Builder
		w := csv.NewWriter(&text)
		w.Write([]string{"prompt", "model"})
		for i := range n {
			model := "busy"
			if i >= n/2 {
				model = "free"
			}
			w.Write([]string{fmt.Sprintf("line\n\"%d\",\n", i), model})
		}
		w.Flush()
		f := newFiles(t, "")
		server := newSim(t, sim.Config{Storms: []sim.Storm{{From: 0, To: time.Minute}}})
		cfg := f.config(t, server.Transport())
		cfg.Input = writeInput(t, "in.csv", text.String())
		rep, err := run(t, cfg)
		if err != nil || rep.Done != n {
			t.Fatalf("done %d, error %v", rep.Done, err)
		}
		if got := len(f.results(t)); got != n {
			t.Errorf("%d results", got)
		}
	})
}
