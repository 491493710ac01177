package dist

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"runtime/debug"
	"strings"
)

// bom is a list of what is in a binary, as CycloneDX 1.6 has it.
type bom struct {
	Schema       string      `json:"$schema"`
	Format       string      `json:"bomFormat"`
	SpecVersion  string      `json:"specVersion"`
	SerialNumber string      `json:"serialNumber"`
	Version      int         `json:"version"`
	Metadata     metadata    `json:"metadata"`
	Components   []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp,omitempty"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []licensed `json:"licenses,omitempty"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type licensed struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SBOM lists what is in a binary of this project: its modules, the standard library, and how it was built, all as the linker
// wrote it into the binary. The list is one document of CycloneDX in JSON, and the same for the same binary.
func SBOM(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	main := module(&info.Main)
	main.Type, main.Name = "application", path.Base(info.Path) // as its file is called
	main.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	var mit licensed
	mit.License.ID = "MIT"
	main.Licenses = []licensed{mit}
	doc := bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6",
		SerialNumber: serial(sum), Version: 1,
	}
	for _, set := range info.Settings {
		main.Properties = append(main.Properties, property{"go:build:" + set.Key, set.Value})
		if set.Key == "vcs.time" {
			doc.Metadata.Timestamp = set.Value
		}
	}
	doc.Metadata.Component = main
	std := strings.TrimPrefix(info.GoVersion, "go")
	doc.Components = []component{{Type: "library", Ref: purl("std", std), Name: "std", Version: std, PURL: purl("std", std)}}
	for _, dep := range info.Deps {
		if dep.Replace != nil && dep.Replace.Version != "" { // without, it is a directory
			dep = dep.Replace
		}
		doc.Components = append(doc.Components, module(dep))
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}

// module is what is known of a module.
func module(m *debug.Module) component {
	c := component{Type: "library", Ref: purl(m.Path, m.Version), Name: m.Path, Version: m.Version, PURL: purl(m.Path, m.Version)}
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}

// purl is the URL of a module's package, by which databases of faults find it.
func purl(path, version string) string {
	url := "pkg:golang/" + path
	if version != "" {
		url += "@" + strings.NewReplacer("+", "%2B", "(", "%28", ")", "%29").Replace(version)
	}
	return url
}

// serial is a number that only the same binary has: a UUID of version 8, which is made as one likes.
func serial(sum [sha256.Size]byte) string {
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
