package rows

import (
	"fmt"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// parquetKind is how the children of a node of a schema are written.
type parquetKind uint8

const (
	parquetLeaf    parquetKind = iota // there are none: a value
	parquetStruct                     // an object
	parquetWrapper                    // the only one stands for the node: the levels of a list or map
	parquetEntry                      // key and value of a map
)

// parquetNode is a node of a schema. Every value of a leaf comes with two levels: the depth of what is defined of its path, and the depth of
// the repeated node of which it is a further item.
type parquetNode struct {
	name, path string // the path with dots
	typ        string // as messages name it
	kind       parquetKind
	children   []*parquetNode
	repeated   bool
	definition int  // definition level from which on it is not null, or repetition not empty
	repetition int  // repetition level of its further items
	leaf       int  // index of the first leaf at or below it
	leaves     int  // how many there are
	text       bool // it is a leaf of texts
	append     parquetAppend
}

// parquetAppend appends a value as JSON, or says what is wrong with it.
type parquetAppend func(b []byte, v parquet.Value) (out []byte, problem string)

func (n *parquetNode) open() string {
	if n.kind == parquetEntry {
		return "{"
	}
	return "["
}

func (n *parquetNode) close() string {
	if n.kind == parquetEntry {
		return "}"
	}
	return "]"
}

func (n *parquetNode) names() []string {
	names := make([]string, len(n.children))
	for i, child := range n.children {
		names[i] = child.name
	}
	return names
}

// parquetSchema returns the root of the nodes, which come depth first, or the first problem: a type that JSON does not have, or names of
// columns that are not those of members of an object.
func parquetSchema(elements []format.SchemaElement) (*parquetNode, *Problem) {
	b := parquetBuilder{elements: elements}
	root := &parquetNode{kind: parquetStruct}
	bad := b.build(root)
	return root, bad
}

// parquetBuilder makes nodes of the elements of a schema.
type parquetBuilder struct {
	elements []format.SchemaElement
	leaves   int
}

// build takes a node's element and those below it.
func (b *parquetBuilder) build(n *parquetNode) *Problem {
	e := b.elements[0]
	b.elements = b.elements[1:]
	n.leaf = b.leaves
	if e.Type.Valid {
		b.leaves++
		n.leaves = 1
		n.typ, n.append, n.text = parquetLeafOf(&e)
		if n.append == nil {
			return n.refused()
		}
		return nil
	}
	for range e.NumChildren.V {
		child := &parquetNode{name: b.elements[0].Name, path: b.elements[0].Name, definition: n.definition, repetition: n.repetition}
		if n.path != "" {
			child.path = n.path + "." + child.name
		}
		switch b.elements[0].RepetitionType.V {
		case format.Optional:
			child.definition++
		case format.Repeated:
			child.definition++
			child.repetition++
			child.repeated = true
		}
		if bad := b.build(child); bad != nil {
			return bad
		}
		n.children = append(n.children, child)
	}
	n.leaves = b.leaves - n.leaf
	return n.group(&e)
}

// group settles how a node with children is written.
func (n *parquetNode) group(e *format.SchemaElement) *Problem {
	n.kind, n.typ = parquetStruct, "STRUCT"
	logical := e.LogicalType.Value
	converted := parquetConverted(e)
	_, list := logical.(*format.ListType)
	_, isMap := logical.(*format.MapType)
	switch {
	case list, logical == nil && converted == deprecated.List:
		n.typ = "LIST"
		return n.list()
	case isMap, logical == nil && (converted == deprecated.Map || converted == deprecated.MapKeyValue && !n.repeated):
		n.typ = "MAP"
		return n.entries()
	case logical != nil:
		n.typ = logical.String()
		return n.refused()
	case len(n.children) == 0:
		n.typ = "empty STRUCT"
		return n.refused()
	}
	if bad := columnNames(n.names()); bad != nil {
		if n.path != "" {
			bad.Text = fmt.Sprintf("column %s: %s", quoted(n.path), bad.Text)
		}
		return bad
	}
	return nil
}

// list has the node written as the items of its repeated child. Those are the child's only member, unless an old writer left that level out.
func (n *parquetNode) list() *Problem {
	if len(n.children) != 1 || !n.children[0].repeated {
		return n.refused()
	}
	n.kind = parquetWrapper
	child := n.children[0]
	if child.kind == parquetStruct && len(child.children) == 1 && !child.children[0].repeated && child.name != "array" && child.name != n.name+"_tuple" {
		child.kind = parquetWrapper
	}
	return nil
}

// entries has the node written as an object of its keys and values.
func (n *parquetNode) entries() *Problem {
	if len(n.children) != 1 || !n.children[0].repeated || n.children[0].kind != parquetStruct || len(n.children[0].children) != 2 {
		return n.refused()
	}
	entry := n.children[0]
	if key := entry.children[0]; !key.text || key.repeated {
		n.typ = "MAP with keys of type " + key.typ
		return n.refused()
	}
	n.kind, entry.kind = parquetWrapper, parquetEntry
	return nil
}

func (n *parquetNode) refused() *Problem {
	return &Problem{Text: fmt.Sprintf("column %s has the type %s, which has no exact form in JSON", quoted(n.path), n.typ)}
}

// parquetConverted is the old annotation of an element, or -1.
func parquetConverted(e *format.SchemaElement) deprecated.ConvertedType {
	if !e.ConvertedType.Valid {
		return -1
	}
	return e.ConvertedType.V
}
