"""The rooms of include/fathom/ and who may include whom; docs/design.md says what each is for."""

# Every room in the order in which data flows, and the rooms that it may include besides itself.
ROOMS = {
    "core": "",
    "tensor": "core",
    "parallel": "core tensor",
    "device": "core tensor",
    "comm": "core tensor parallel device",
    "ops": "core tensor device",
    "optim": "core tensor parallel device comm ops",
    "nn": "core tensor parallel device comm ops",
    "models": "core tensor parallel device comm ops nn",
    "recipe": "core tensor parallel device comm ops nn models optim",
    "data": "core tensor comm",
    "checkpoint": "core tensor parallel device comm",
    "cost": "core tensor parallel device comm ops nn models recipe optim",
    "observe": "core comm",
    "train": "core tensor parallel device comm ops nn models recipe optim data checkpoint cost observe",
}
