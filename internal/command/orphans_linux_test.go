package command_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
)

func TestAProcessThatBecomesAnotherIsNotOneWithoutAnEnvironment(t *testing.T) {
	// A line of /proc/PID/stat, of which memory, code and the two ends of the environment vary.
	line := func(name, memory, code, start, end string) string {
		return fmt.Sprintf("4568 (%s) S 3527 4568 4568 0 -1 4194304 134 0 0 0 0 0 0 0 20 0 1 0 109596 %s 327 18446744073709551615 "+
			"%s 94137848927753 140728202204544 0 0 0 0 6 0 1 0 0 17 1 0 0 0 0 0 94137848941840 94137848943104 94138085851136 "+
			"140728202210971 140728202210980 %s %s 0\n", name, memory, code, start, end)
	}
	for _, c := range []struct {
		name, stat string
		want       bool
	}{
		{"its memory is new", line("sh", "135168", "0", "0", "0"), true},
		{"its words are there, and its variables are being counted", line("sleep", "2560000", "0", "140728202210980", "140728202210980"), true},
		{"it came to be one just now", line("sleep", "2560000", "94137848909824", "140728202210980", "140728202211305"), true},
		{"it began with no variable", line("sleep", "2560000", "94137848909824", "140728202210980", "140728202210980"), false},
		{"it is a thread of the kernel", line("kworker/0:1", "0", "0", "0", "0"), false},
		{"its name looks like fields", line("a) S 0 (b", "2560000", "0", "0", "0"), true},
		{"it has gone", "", false},
	} {
		if got := command.Unfinished([]byte(c.stat)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestAProcessWithoutAnEnvironmentIsKnownAsThat(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.Env = []string{}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for end := time.Now().Add(5 * time.Minute); command.Becoming(cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is never done")
		}
	}
	if command.Becoming(os.Getpid()) {
		t.Error("this test is taken for one")
	}
}
