//go:build unix

package command_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/suite"
)

func TestTheLimitOfProcessorTimeEndsACommand(t *testing.T) {
	suite.FullOnly(t) // it takes a second of processor time
	t.Parallel()
	res, err := command.Run(t.Context(), command.Spec{
		Args: []string{"sh", "-c", "while :; do :; done"}, Env: env, CPU: 300 * time.Millisecond,
	})
	if err == nil || !strings.Contains(strings.ToLower(res.Signal), "cpu") || res.CPU < 500*time.Millisecond || res.CPU > 3*time.Second {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestTheLimitOfMemoryFailsAllocations(t *testing.T) {
	dd := []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=268435456", "count=1"}
	var says bytes.Buffer
	res, err := command.Run(t.Context(), command.Spec{Args: dd, Env: env, Stderr: &says, Memory: 64 << 20})
	if err == nil || res.ExitCode <= 0 {
		t.Errorf("with a limit: %+v, %v, %s", res, err, says.String())
	}
	res, err = command.Run(t.Context(), command.Spec{Args: dd, Env: env, Memory: 1 << 30})
	if err != nil || res.MaxRSS < 200<<20 || res.MaxRSS > 1<<30 {
		t.Errorf("with more: %+v, %v", res, err)
	}
	if res.CPU <= 0 || res.CPU > res.Took+time.Second {
		t.Errorf("%v of processor time in %v", res.CPU, res.Took)
	}
}

// TestLimitsAreInheritedAndWordsAreNotRead: the shell that sets limits reads nothing of the command.
func TestLimitsAreInheritedAndWordsAreNotRead(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "it's $HOME")
	const text = "#!/bin/sh\nsh -c 'ulimit -v; ulimit -S -t; ulimit -H -t'; printf '<%s>' \"$@\"; cat; echo $3 >&3\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	var out, says bytes.Buffer
	_, err := command.Run(t.Context(), command.Spec{
		Args: []string{"./it's $HOME", "$(id)", "a  b", "", "*"}, Env: env, Dir: dir, Stdin: strings.NewReader("in"), Stdout: &out, Stderr: &says,
		Memory: 1<<30 + 1, CPU: 1001 * time.Millisecond,
	})
	if want := "1048577\n2\n3\n<$(id)><a  b><><*>in"; out.String() != want {
		t.Errorf("%q, %v, want %q", out.String(), err, want)
	}
	if err == nil || !strings.Contains(says.String(), "3") { // descriptor 3 is not the program's
		t.Errorf("error %v: %s", err, says.String())
	}
}

func TestAProgramThatIsNotThereIsSoWithLimitsToo(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"no-such-program", "/no/such/program", "./plain", "/"} {
		_, err := command.Run(t.Context(), command.Spec{Args: []string{name}, Env: env, Dir: dir, Memory: 1 << 30})
		if missing, ok := errors.AsType[*command.NotStartedError](err); !ok || missing.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLimitsThatAreRefusedAreAnError(t *testing.T) {
	out, err := exec.Command(os.Args[0], "refused").CombinedOutput()
	first, second, _ := strings.Cut(string(out), "\n")
	if err != nil || first != "1s <nil>" ||
		!strings.HasPrefix(second, "1m0s true: its limits were refused: ") || !strings.Contains(second, "ulimit") {
		t.Errorf("%v: %s", err, out)
	}
}
