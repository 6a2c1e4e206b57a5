package node

import (
	"strings"
	"testing"
)

func TestFreeIndex(t *testing.T) {
	var full []int
	for index := range 32 {
		full = append(full, index)
	}
	for _, test := range []struct {
		indexes []int
		names   []string
		want    int
		wrong   string
	}{
		{[]int{0, 1}, nil, 2, ""},
		{[]int{0, 2}, nil, 1, ""},
		{[]int{0, 2}, []string{"keelson-node-5"}, 4, ""},
		{[]int{0, 2}, []string{"keelson-node-3"}, 0, "the node keelson-node-3 exists already"},
		{[]int{0}, []string{"web"}, 0, "cannot be named web: choose a name from keelson-node-2 to keelson-node-32"},
		{full, nil, 0, "there are 32 nodes already"},
	} {
		got, err := freeIndex(test.indexes, test.names)
		if test.wrong == "" && (err != nil || got != test.want) {
			t.Errorf("%v %v: %d, %v, want %d", test.indexes, test.names, got, err, test.want)
		}
		if test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)) {
			t.Errorf("%v %v: %v, want %q", test.indexes, test.names, err, test.wrong)
		}
	}
}
