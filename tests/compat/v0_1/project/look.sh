cat >/dev/null; grep changed "$GOENT_WORKSPACE_PATH/page.txt"
