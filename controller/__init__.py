"""The controller daemon: it decides what the metadata log says next. `core` decides, the shells around it carry out."""
