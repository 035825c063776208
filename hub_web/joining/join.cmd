@echo off
chcp 65001 >nul
title Strawberry
rem @about@
cd /d "%TEMP%"
set "PATH=%USERPROFILE%\.local\bin;%PATH%"
where py >nul 2>nul || goto python
echo @installing@
@steps@
echo.
echo @joining@
@join@ || goto failed
echo.
echo @running@
@run@
:failed
echo.
echo @failed@
goto end
:python
echo @python@
:end
pause
