package recording_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/scripts/internal/recording"
)

func TestCommandsAreRecordedOnATerminal(t *testing.T) {
	if f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err != nil {
		t.Skip("no terminals here: ", err)
	} else {
		f.Close()
	}
	config := recording.Config{Width: 42, Height: 7, Title: "t", Dir: t.TempDir(), Env: os.Environ(), Between: 50 * time.Millisecond}
	config.Commands = []recording.Command{
		{Text: "stty size"}, // of the terminal that it is on
		{Text: "printf '½ done\\n'"},
		{Text: `sh -c 'trap "exit 130" INT; echo waits; sleep 60 & wait'`, InterruptAfter: 300 * time.Millisecond},
	}
	rec, err := recording.Record(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	last := time.Duration(-1)
	for _, p := range rec.Parts {
		if p.At < last {
			t.Errorf("%q came at %v, after %v", p.Text, p.At, last)
		}
		last = p.At
		all.WriteString(p.Text)
	}
	s := recording.NewScreen(42, 20)
	if err := s.Write(all.String()); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(s.Lines(), "\n")
	for _, want := range []string{"$ stty size\n7 42\n", "\n½ done\n", "\nwaits\n^C"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	config.Commands = []recording.Command{{Text: "false"}}
	if _, err := recording.Record(context.Background(), config); err == nil {
		t.Error("a command that fails is no error")
	}
}
