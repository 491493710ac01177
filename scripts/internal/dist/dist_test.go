package dist_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/scripts/internal/dist"
)

var released = time.Date(2026, 3, 1, 12, 0, 4, 0, time.UTC)

// tree makes files in a directory of its own, in the order of names, whose owner alone may use them.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range names {
		mode := os.FileMode(0o600)
		if strings.HasPrefix(filepath.Base(name), "run") {
			mode = 0o700
		}
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("this is "+name), mode); err != nil {
			t.Fatal(err)
		}
		at := released.Add(time.Duration(-i) * time.Hour)
		if err := os.Chtimes(p, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packed packs a directory and returns the archive.
func packed(t *testing.T, name, dir string) []byte {
	t.Helper()
	archive := filepath.Join(t.TempDir(), name)
	if err := dist.Pack(archive, dir, released.In(time.FixedZone("elsewhere", 3600))); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// entry is what an archive says of a file.
type entry struct {
	Name, Text string
	Mode       os.FileMode
}

func TestEqualFilesMakeEqualArchives(t *testing.T) {
	for _, name := range []string{"x_1.tar.gz", "x_1.zip"} {
		a := packed(t, name, tree(t, "b", "a/c", "run", "a/b"))
		b := packed(t, name, tree(t, "run", "a/b", "a/c", "b"))
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs when its files were made in another order, at other times", name)
		}
		if c := packed(t, name, tree(t, "run", "a/b", "a/c", "B")); bytes.Equal(a, c) {
			t.Errorf("%s is the same with another file", name)
		}
	}
}

func TestAnArchiveHoldsTheFiles(t *testing.T) {
	dir := tree(t, "run", "a/b")
	want := []entry{{"x_1/a/b", "this is a/b", 0o644}, {"x_1/run", "this is run", 0o755}}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed(t, "x_1.tar.gz", dir)))
	if err != nil {
		t.Fatal(err)
	}
	var tarred []entry
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(released) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s is of %s, %d %s and %d %s", h.Name, h.ModTime, h.Uid, h.Uname, h.Gid, h.Gname)
		}
		text, _ := io.ReadAll(r)
		tarred = append(tarred, entry{h.Name, string(text), h.FileInfo().Mode()})
	}
	if diff := cmp.Diff(want, tarred); diff != "" {
		t.Error(diff)
	}
	b := packed(t, "x_1.zip", dir)
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var zipped []entry
	for _, f := range r.File {
		if !f.Modified.Equal(released) {
			t.Errorf("%s is of %s", f.Name, f.Modified)
		}
		text, err := r.Open(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(text)
		zipped = append(zipped, entry{f.Name, string(b), f.Mode()})
	}
	if diff := cmp.Diff(want, zipped); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNoReleaseIsNotPacked(t *testing.T) {
	dir := tree(t, "a")
	if err := dist.Pack(filepath.Join(t.TempDir(), "x.rar"), dir, released); err == nil {
		t.Error("an archive of another form was made")
	}
	if err := dist.Pack(filepath.Join(t.TempDir(), "x.zip"), t.TempDir(), released); err == nil {
		t.Error("an archive of nothing was made")
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	if err := dist.Pack(filepath.Join(t.TempDir(), "x.zip"), dir, released); err == nil {
		t.Error("a link was packed")
	}
}

// build builds a program that is of one module and uses another.
func build(t *testing.T) (binary string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                       "module example.com/house\n\ngo 1.26\n\nrequire example.com/Door v2.0.0+incompatible\n",
		"cmd/lamp/main.go":             "package main\n\nimport \"example.com/Door\"\n\nfunc main() { println(door.Open) }\n",
		"vendor/modules.txt":           "# example.com/Door v2.0.0+incompatible\n## explicit; go 1.26\nexample.com/Door\n",
		"vendor/example.com/Door/d.go": "package door\n\nconst Open = true\n",
	} {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "lamp")
	cmd := exec.Command("go", "build", "-mod=vendor", "-o", binary, "./cmd/lamp")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func TestABinarySaysWhatIsInIt(t *testing.T) {
	binary := build(t)
	text, err := dist.SBOM(binary)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := dist.SBOM(binary)
	if !bytes.Equal(text, again) {
		t.Error("the second list of a binary differs from the first")
	}
	type part struct{ Type, Name, Version, PURL string }
	var doc struct {
		BomFormat, SpecVersion, SerialNumber string
		Metadata                             struct {
			Component struct {
				part
				Hashes     []struct{ Alg, Content string }
				Properties []struct{ Name, Value string }
			}
		}
		Components []part
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	content, _ := os.ReadFile(binary)
	sum := sha256.Sum256(content)
	main := doc.Metadata.Component
	if doc.BomFormat != "CycloneDX" || doc.SpecVersion != "1.6" {
		t.Errorf("the list is of the form %s %s", doc.BomFormat, doc.SpecVersion)
	}
	if len(main.Hashes) != 1 || main.Hashes[0].Alg != "SHA-256" || main.Hashes[0].Content != hex.EncodeToString(sum[:]) {
		t.Errorf("the hash of the binary is not %v", main.Hashes)
	}
	if len(main.Properties) == 0 || !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(doc.SerialNumber) {
		t.Errorf("serial number %s, %v", doc.SerialNumber, main.Properties)
	}
	std := strings.TrimPrefix(runtime.Version(), "go")
	want := []part{
		{"application", "lamp", "(devel)", "pkg:golang/example.com/house@%28devel%29"},
		{"library", "std", std, "pkg:golang/std@" + std},
		{"library", "example.com/Door", "v2.0.0+incompatible", "pkg:golang/example.com/Door@v2.0.0%2Bincompatible"},
	}
	if diff := cmp.Diff(want, append([]part{main.part}, doc.Components...)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatGoDidNotBuildHasNoList(t *testing.T) {
	if _, err := dist.SBOM(filepath.Join(tree(t, "run"), "run")); err == nil {
		t.Error("a text has a list")
	}
}
