package gate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheGateIsPure looks for a clock, a timer, a goroutine and a lock.
func TestTheGateIsPure(t *testing.T) {
	impure := regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|Sleep|Tick|NewTimer|NewTicker)\b|\bgo (func|\w+\()|\bselect \{|"(sync|sync/atomic|context|runtime|os)"`)
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := impure.Find(src); found != nil && !strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s has %s", name, found)
		}
	}
}
