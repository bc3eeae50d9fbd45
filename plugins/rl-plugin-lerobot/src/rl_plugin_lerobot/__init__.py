"""Published policies: folders of other projects, with their architecture and their names of weights."""
