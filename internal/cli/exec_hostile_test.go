package cli_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/suite"
)

// TestWhatCommandsDoToTheirDirectories has one command of five do something to its directory. It must harm neither the others nor
// what is elsewhere.
func TestWhatCommandsDoToTheirDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		script string // of the third item; $1 is a directory elsewhere, $2 a file in it
		code   int
		state  proc.State // of the third item
	}{
		"makes a file of it":              {`rm -rf "$SLUICE_ITEM_DIR"; echo > "$SLUICE_ITEM_DIR"; exit 1`, 3, proc.Failed},
		"makes it a link":                 {`rm -rf "$SLUICE_ITEM_DIR"; ln -s "$1" "$SLUICE_ITEM_DIR"`, 0, proc.Succeeded},
		"makes it a link and fails":       {`rm -rf "$SLUICE_ITEM_DIR"; ln -s "$1" "$SLUICE_ITEM_DIR"; exit 1`, 3, proc.Failed},
		"links where the result goes":     {`ln -s "$2" "$SLUICE_ITEM_DIR/result.json"`, 0, proc.Succeeded},
		"links where the result is begun": {`ln -s "$2" "$SLUICE_ITEM_DIR/result.json.tmp"`, 0, proc.Succeeded},
		"has a directory for the result":  {`mkdir -p "$SLUICE_ITEM_DIR/result.json/x"`, 0, proc.Succeeded},
		"has a directory for its draft":   {`mkdir -p "$SLUICE_ITEM_DIR/result.json.tmp/x"; exit 1`, 3, proc.Failed},
		"has a pipe for the result":       {`mkfifo "$SLUICE_ITEM_DIR/result.json"; exit 1`, 3, proc.Failed},
		"has a file for failed tries":     {`echo > "$SLUICE_ITEM_DIR/.failed"; exit 1`, 3, proc.Failed},
		"links where failed tries go":     {`ln -s "$1" "$SLUICE_ITEM_DIR/.failed"; exit 1`, 3, proc.Failed},
		"takes its rights away":           {`cd "$SLUICE_ITEM_DIR"; mkdir -p a/b; chmod 0 a .; exit 1`, 3, proc.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "makes it a link", "links where the result goes", "has a pipe for the result", "takes its rights away":
			default:
				suite.FullOnly(t)
			}
			t.Parallel()
			b := newBed(t)
			t.Cleanup(func() { // so that a user other than root can remove it
				filepath.WalkDir(b.path("state"), func(path string, d fs.DirEntry, err error) error {
					if err == nil && d.IsDir() {
						err = os.Chmod(path, 0o700)
					}
					return err
				})
			})
			elsewhere := b.path("elsewhere")
			if err := os.Mkdir(elsewhere, 0o700); err != nil {
				t.Fatal(err)
			}
			file := b.write("elsewhere/file", "of somebody")
			script := `echo said; if [ "$3" = item3 ]; then ` + c.script + `; fi`
			code, out := b.exec("--items", b.items(5), "--jobs", "2", "--max-attempts", "2", "--", "sh", "-c", script, "sh", elsewhere, file, "{}")
			results := b.results()
			if code != c.code || len(results) != 5 {
				t.Errorf("exit code %d, want %d; %d results of 5: %s", code, c.code, len(results), out)
			}
			for id, r := range results {
				want := proc.Succeeded
				if id == "3" {
					want = c.state
				}
				if r.State != want {
					t.Errorf("%s: %s, want %s: %+v", id, r.State, want, r.Fault)
				}
			}
			text, err := os.ReadFile(file)
			entries, dirErr := os.ReadDir(elsewhere)
			if err != nil || dirErr != nil || string(text) != "of somebody" || len(entries) != 1 {
				t.Errorf("what is elsewhere was touched: %q %v %v %v", text, entries, err, dirErr)
			}
			if again, out := b.exec("--items", b.path("items.txt"), "--jobs", "2", "--max-attempts", "2", "--", "sh", "-c", script, "sh", elsewhere, file, "{}"); again != c.code {
				t.Errorf("again: exit code %d: %s", again, out)
			}
		})
	}
}

// TestPlantedResultsAreNotRead puts things where a run that was killed may have left a result: none of them may hang the next one.
func TestPlantedResultsAreNotRead(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	list := b.items(3)
	args := []string{"--items", list, "--jobs", "1", "--max-attempts", "1", "--", "sh", "-c", `test ! -e "$0" && exit 0
		cd "$SLUICE_ITEM_DIR/.." || exit 1
		mkdir 2-2 3-3 && mkfifo 2-2/result.json && truncate -s 8G 3-3/result.json && rm "$0" && kill -9 "$PPID" && sleep 60`, b.write("first", "")}
	if code, out := b.exec(args...); code == 0 {
		t.Fatalf("was not killed: %s", out)
	}
	b.awaitNothing()
	code, out := b.exec(args...)
	if results := b.results(); code != 0 || len(results) != 3 {
		t.Errorf("exit code %d, %d results of 3: %s", code, len(results), out)
	}
}
